# Builds the tests and the tools that are not installed. datapath/CMakeLists.txt includes this
# file, so relative paths start in datapath/.

# --- tools/hop: the lab's emulated link; all but its sockets and clock is tested
file(GLOB HOP_SOURCES CONFIGURE_DEPENDS ${CAREFUL_ROOT}/tools/hop/*.c)
list(REMOVE_ITEM HOP_SOURCES ${CAREFUL_ROOT}/tools/hop/main.c)
add_library(hop STATIC ${HOP_SOURCES})
target_include_directories(hop PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include)
target_compile_definitions(hop PUBLIC _GNU_SOURCE)
target_link_libraries(hop PUBLIC m)
add_executable(careful-hop ${CAREFUL_ROOT}/tools/hop/main.c)
target_link_libraries(careful-hop PRIVATE hop)

# add_printing_test(NAME SECONDS PATTERN TARGET ARGUMENT…): the program must print PATTERN, and end
# with 0: CTest ignores the exit status of a test that has a pattern, so the pattern includes it.
function(add_printing_test name seconds pattern target)
  add_test(NAME ${name} COMMAND sh -c "\"$@\"; status=$?; echo status=$status; exit $status" sh
                                ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${target}> ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds} SKIP_RETURN_CODE 77
                                          PASS_REGULAR_EXPRESSION "${pattern}.*status=0")
endfunction()

# --- tests/…/test_X.c: one program each
file(GLOB_RECURSE TEST_SOURCES CONFIGURE_DEPENDS ${CAREFUL_ROOT}/tests/test_*.c)
if(CAREFUL_TESTS)
  enable_testing()
  foreach(source ${TEST_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE careful_static)
    target_include_directories(${name} PRIVATE ${CAREFUL_ROOT}/tests/support)
    target_compile_options(${name} PRIVATE ${TEST_OPTIONS})
    if(name MATCHES "^test_sim_")
      list(APPEND SIM_TESTS ${name})
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
  endforeach()
  target_link_libraries(test_hop PRIVATE hop)
  target_sources(test_block_client PRIVATE ${CAREFUL_ROOT}/tests/support/block_client.c)
  file(GLOB IPC_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/daemon/ipc/*.c)
  target_sources(test_attach PRIVATE ${IPC_SOURCES} ${CMAKE_CURRENT_SOURCE_DIR}/daemon/log.c
                                     ${CAREFUL_ROOT}/tests/support/memory_device.c)
  target_link_libraries(test_syscalls PRIVATE PkgConfig::SECCOMP)
  set(FUZZ ${CAREFUL_ROOT}/tests/fuzz)
  # An instance that is told what the test likes.
  set(TOLD_SOURCES ${FUZZ}/device.c ${FUZZ}/keyed.c ${FUZZ}/node.c ${FUZZ}/wire.c)
  add_library(told OBJECT ${TOLD_SOURCES})
  target_link_libraries(told PUBLIC careful_static)
  target_include_directories(told PUBLIC ${FUZZ} ${CAREFUL_ROOT}/tests/support)
  target_compile_options(told PRIVATE ${TEST_OPTIONS})
  foreach(name first frame handshake hostile keyed released released_before reservation told
          train)
    target_link_libraries(test_${name} PRIVATE told)
  endforeach()
endif()

# --- the XDP program as for a CPU that keeps no order (frame.h): a test loads it
if(CAREFUL_TESTS)
  set(UNORDERED ${CMAKE_CURRENT_BINARY_DIR}/careful_unordered.o)
  bpf_object(${CAREFUL_ROOT}/ebpf/careful.bpf.c ${UNORDERED})
  add_custom_target(bpf_unordered DEPENDS ${UNORDERED})
  add_dependencies(test_xdp_order bpf_unordered)
  target_compile_definitions(test_xdp_order PRIVATE UNORDERED="${UNORDERED}")
endif()

# --- tests/sim: the engine on virtual devices in virtual time
if(CAREFUL_TESTS)
  file(GLOB_RECURSE SIM_SOURCES CONFIGURE_DEPENDS ${CAREFUL_ROOT}/tests/sim/*.c)
  list(FILTER SIM_SOURCES EXCLUDE REGEX "/(main|test_[^/]*)\\.c$")
  add_library(cluster STATIC ${SIM_SOURCES})
  target_link_libraries(cluster PUBLIC careful_static)
  target_include_directories(cluster PUBLIC ${CAREFUL_ROOT}/tests/sim)
  target_include_directories(cluster PRIVATE ${CAREFUL_ROOT}/tests/support)
  add_executable(sim ${CAREFUL_ROOT}/tests/sim/main.c)
  target_link_libraries(sim PRIVATE cluster)
  foreach(name ${SIM_TESTS} test_frame)
    target_link_libraries(${name} PRIVATE cluster)
  endforeach()
  target_compile_options(test_sim_p2 PRIVATE -O2) # it computes, too
  target_sources(test_sim_p2 PRIVATE ${CAREFUL_ROOT}/tools/p2/jacobi.c
                                     ${CAREFUL_ROOT}/tools/p2/p2.c)
  target_include_directories(test_sim_p2 PRIVATE ${CAREFUL_ROOT}/tools/p2)
  # Few: tests/soak/run --sim runs a million.
  set(SIM_SEEDS 1500)
  set(HOSTILE_SEEDS 250)
  set(TRADITIONAL_SEEDS 300)
  set(share 2)
  if(CAREFUL_SANITIZE) # several times slower
    set(SIM_SEEDS 300)
    set(HOSTILE_SEEDS 60)
    set(TRADITIONAL_SEEDS 100)
    set(share 4)
  endif()
  # All of them run after: cmake -DSEEDS_SHARE=1 build/gcc
  set(SEEDS_SHARE ${share} CACHE STRING "One of so many seeds of test_sim_{clients,hostile,incast} runs")
  foreach(name clients hostile incast)
    target_compile_definitions(test_sim_${name} PRIVATE SEEDS_SHARE=${SEEDS_SHARE})
  endforeach()
  add_test(NAME sim COMMAND sim --count ${SIM_SEEDS})
  add_test(NAME sim_traditional COMMAND sim --protocol traditional --count ${TRADITIONAL_SEEDS})
  # Replies to a process that had gone before its session was open at both ends.
  add_test(NAME sim_traditional_13040 COMMAND sim --unpacked --protocol traditional
                                              --from 13040 --count 1)
  # All of a node's four receive buffers were held, and no acknowledgement found room.
  add_test(NAME sim_traditional_189032 COMMAND sim --unpacked --protocol traditional
                                               --from 189032 --count 1)
  # A broadcast's last frames were lost, and pings went on: neither a gap nor a silence.
  add_test(NAME sim_last_broadcast COMMAND sim --unpacked --seed 967773 --without-op 13 --hits
                                           0:3,7,18,19,20,21)
  # The same, and the session ended after its sender had left the group: no failure of that.
  add_test(NAME sim_left_broadcast COMMAND sim --seed 2398745 --without-op 0 --without-op 3
                                           --without-op 5 --without-fault 0 --without-fault 2
                                           --without-fault 3 --without-fault 5 --hits 4:20)
  # Two requests fit no frame any more, and the end of the first closed the session.
  add_test(NAME sim_outgrown COMMAND sim --from 20674738 --count 1)
  # Each frame of a sealed session came twice: more than it has room for beside its window.
  add_test(NAME sim_sealed_twice COMMAND sim --from 21027039 --count 1)
  # A forged REFUSE, and a clock that jumped ahead: as if nothing else had been heard for long.
  add_test(NAME sim_refused COMMAND sim --from 30716278 --count 1)
  # A CHALLENGE that another had overtaken.
  add_test(NAME sim_overtaken COMMAND sim --from 47991298 --count 1)
  # A queue that counts frames took all of a train, and lost each burst of smaller ones.
  add_test(NAME sim_tiny_frames COMMAND sim --from 41933475 --count 1)
  # A grant came when all had left that it was for, and its peer was never told of it.
  add_test(NAME sim_grant_untold COMMAND sim --from 45942495 --count 1)
  # Sealed frames came again while a process stood.
  add_test(NAME sim_sealed_stopped COMMAND sim --from 43539803 --count 1)
  # A smaller MTU, and the former again before the request had heard of it.
  add_test(NAME sim_outgrown_and_back COMMAND sim --from 43873015 --count 1)
  # A node left a group, and only then said that it takes part.
  add_test(NAME sim_unasked COMMAND sim --from 6584579 --count 1)
  # Runs in virtual time must print what is stored in tests/reports.
  if(NOT CAREFUL_SANITIZE) # they take long then, and print the same
    set(KEPT ${CAREFUL_ROOT}/tests/reports)
    if(CMAKE_CROSSCOMPILING_EMULATOR) # of another architecture
      list(JOIN CMAKE_CROSSCOMPILING_EMULATOR "' '" RUN)
      set(RUN "'${RUN}'")
    endif()
    add_test(NAME kept_p2_virtual
             COMMAND bash -o pipefail -c
             "${RUN} '$<TARGET_FILE:test_sim_p2>' profile | diff '${KEPT}/p2-virtual.txt' -")
    add_test(NAME kept_p2_held COMMAND bash -o pipefail -c
             "(${RUN} '$<TARGET_FILE:test_sim_held>' &&
              ${RUN} '$<TARGET_FILE:test_sim_broadcast>') |
              grep '^ ' | diff '${KEPT}/p2-held.txt' -")
    add_test(NAME kept_logp_virtual
             COMMAND bash -o pipefail -c
             "${RUN} '$<TARGET_FILE:test_sim_logp>' tables | diff '${KEPT}/logp-virtual.txt' -")
  endif()
  add_test(NAME sim_hostile COMMAND sim --hostile --count ${HOSTILE_SEEDS})
  # At the liar's own end more answers wait than two honest windows.
  add_test(NAME sim_hostile_late COMMAND sim --seed 292709 --hostile)
  # The liar ended while frames of its session were missing: the peer waited a second for them.
  add_test(NAME sim_hostile_missing COMMAND sim --seed 805 --hostile)
  # A full window waits behind a frame whose charge the receive ring lost.
  add_test(NAME sim_ring_charge COMMAND sim --seed 31663)
  add_test(NAME sim_hostile_traditional COMMAND sim --hostile --protocol traditional --count ${TRADITIONAL_SEEDS})
endif()

# --- tests/explore: every state of the window code
file(GLOB EXPLORE_SOURCES CONFIGURE_DEPENDS ${CAREFUL_ROOT}/tests/explore/*.c)
if(CAREFUL_TESTS)
  add_executable(explore ${EXPLORE_SOURCES})
  target_link_libraries(explore PRIVATE careful_static)
endif()

# --- tests/fuzz: libFuzzer's; with sanitizers, the kept inputs are tests
set(FUZZ ${CAREFUL_ROOT}/tests/fuzz)
if(CAREFUL_TESTS AND CMAKE_C_COMPILER_ID MATCHES Clang)
  foreach(name am attach block event ipc keyed lend link tree)
    add_executable(fuzz_${name} ${FUZZ}/fuzz_${name}.c)
    target_link_libraries(fuzz_${name} PRIVATE careful_static)
    target_include_directories(fuzz_${name} PRIVATE ${FUZZ} ${CAREFUL_ROOT}/tests/support)
    target_compile_options(fuzz_${name} PRIVATE ${TEST_OPTIONS})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    if(CAREFUL_SANITIZE)
      file(GLOB inputs CONFIGURE_DEPENDS ${FUZZ}/corpus/${name}/*)
      add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${inputs})
      set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT 120)
    else() # for clang-tidy alone
      set_target_properties(fuzz_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    list(APPEND FUZZ_SOURCES ${FUZZ}/fuzz_${name}.c)
  endforeach()
  foreach(name am event keyed link) # a whole instance, on a device of its own
    target_link_libraries(fuzz_${name} PRIVATE told)
  endforeach()
  list(APPEND FUZZ_SOURCES ${TOLD_SOURCES})
  target_include_directories(fuzz_ipc PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  # Two engines joined in memory, and the daemon's socket.
  target_sources(fuzz_attach PRIVATE ${IPC_SOURCES} ${CMAKE_CURRENT_SOURCE_DIR}/daemon/log.c
                                     ${CAREFUL_ROOT}/tests/support/memory_device.c)
  target_include_directories(fuzz_attach PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
endif()

# --- tools/bench: the device layer with nothing above it, requests, fetches from a daemon;
# tests/soak; tests/cost: the engine with no device below it
if(CAREFUL_TESTS)
  set(PROGRAMS ${CAREFUL_ROOT}/tools/bench/programs)
  add_executable(bare ${PROGRAMS}/bare.c)
  target_link_libraries(bare PRIVATE careful_static)
  target_include_directories(bare PRIVATE ${CAREFUL_ROOT}/tests/support)
  foreach(source ${PROGRAMS}/fetch.c ${PROGRAMS}/pair.c ${CAREFUL_ROOT}/tests/soak/soak.c)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE careful_static)
  endforeach()
  target_include_directories(soak PRIVATE ${PROGRAMS})
  target_sources(fetch PRIVATE ${CAREFUL_ROOT}/tests/support/block_client.c)
  target_include_directories(fetch PRIVATE ${CAREFUL_ROOT}/tests/support)
  # In operation_times.c alone: null is timed by its calls, null_operations also within link.
  set(COST ${CAREFUL_ROOT}/tests/cost)
  set_source_files_properties(${COST}/operation_times.c PROPERTIES COMPILE_DEFINITIONS
                              CAREFUL_OPERATIONS)
  set(NULL_SOURCES ${COST}/null.c ${COST}/operation_times.c
                   ${CAREFUL_ROOT}/tests/support/memory_device.c)
  add_executable(null ${NULL_SOURCES})
  # The same with link's operations timed: the objects of its own come before the library's.
  add_executable(null_operations ${NULL_SOURCES} link/send/tx.c link/send/tx_small.c
                 link/send/update.c link/receive/rx.c link/traditional/traditional.c link/traditional/traditional_rx.c)
  target_compile_definitions(null_operations PRIVATE CAREFUL_OPERATIONS)
  foreach(name null null_operations)
    target_link_libraries(${name} PRIVATE careful_static)
    target_include_directories(${name} PRIVATE ${CAREFUL_ROOT}/tests/support ${PROGRAMS})
    target_link_options(${name} PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
  endforeach()
  if(CAREFUL_SANITIZE) # nobody times these
    foreach(name bare fetch null null_operations pair soak)
      target_compile_options(${name} PRIVATE ${TEST_OPTIONS})
    endforeach()
  endif()
  # A message allocates nothing, and does not call the kernel.
  add_printing_test(null_quiet 60 "\"allocations\": 0, \"system_calls\": (0|-1)}" null quiet 20000)
  foreach(protocol careful traditional) # each number is given and taken once a frame
    add_printing_test(null_operations_${protocol} 60
                      "\"send\": {\"each\": 2.000.*\"take\": {\"each\": 2.000"
                      null_operations operations 10000 4 ${protocol})
  endforeach()
  # A round trip is three polls, two frames, two kicks; a poll that finds nothing only looks.
  set(TRIP "\"polls\": 3.000, \"frames\": 2.000, \"rx\": 3.000, \"fill\": 2.000, ")
  set(LOOK "\"polls\": 1.000, \"frames\": 0.000, \"rx\": 1.000, \"fill\": 0.000, ")
  add_printing_test(null_request 60 "${TRIP}\"tx\": 2.000, \"kick\": 2.000, " null request 10000)
  add_printing_test(null_traditional 60 "${TRIP}\"tx\": 2.000, \"kick\": 2.000, " null request 10000 4 traditional)
  add_printing_test(null_idle 60 "${LOOK}\"tx\": 0.000, \"kick\": 0.000, " null idle 10000)
  # A wait that finds something reads no clock: three are the one's that finds nothing.
  add_printing_test(null_wait 60 "\"clock\": 3.125" null wait 10000)
  # Instructions beside a kept run: 3 % more fails. They are those of gcc 12.
  find_program(VALGRIND valgrind)
  if(VALGRIND AND NOT CAREFUL_SANITIZE AND NOT CMAKE_CROSSCOMPILING
     AND CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13)
    add_test(NAME instructions
             COMMAND ${CAREFUL_ROOT}/tools/bench/run instructions $<TARGET_FILE:null> --top 4
                     --only request,idle,word,word-traditional
                     --against ${CAREFUL_ROOT}/tests/reports/instructions.json)
    set_tests_properties(instructions PROPERTIES TIMEOUT 300)
  else()
    message(STATUS "no valgrind, or not gcc 12 without sanitizers: instructions are not compared")
  endif()
  add_test(NAME null_store COMMAND null store 4)
  add_test(NAME null_sealed COMMAND null store 4 65536 encrypt)
  pkg_check_modules(NBD QUIET IMPORTED_TARGET libnbd)
  if(NBD_FOUND) # what tools/bench compares with
    add_library(nbd_pages MODULE ${PROGRAMS}/nbd_pages.c)
    target_link_libraries(nbd_pages PRIVATE careful_static PkgConfig::NBD)
  endif()
  pkg_check_modules(FUSE3 QUIET IMPORTED_TARGET fuse3)
  if(FUSE3_FOUND) # a store that is slow
    add_executable(slowfs ${PROGRAMS}/slowfs.c)
    target_link_libraries(slowfs PRIVATE PkgConfig::FUSE3)
  endif()
endif()

# --- `tidy`, `tidy_long`: clang-tidy, each file again only when it or a header changed
find_program(CAREFUL_CLANG_TIDY NAMES clang-tidy)
if(CAREFUL_CLANG_TIDY)
  file(GLOB_RECURSE TIDY_HEADERS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h
       ${CAREFUL_ROOT}/tests/*.h ${CAREFUL_ROOT}/tools/*.h)
  set(TIDY_SOURCES ${LIBRARY_SOURCES} ${DAEMON_SOURCES} ${HOP_SOURCES}
                   ${CAREFUL_ROOT}/tools/compare/tcp.c
                   ${CAREFUL_ROOT}/tools/p2/jacobi.c
                   ${CAREFUL_ROOT}/tools/p2/node.c
                   ${CAREFUL_ROOT}/tools/p2/p2.c
                   ${CAREFUL_ROOT}/tools/hop/main.c)
  if(CAREFUL_TESTS)
    list(APPEND TIDY_SOURCES ${TEST_SOURCES} ${EXPLORE_SOURCES} ${FUZZ_SOURCES}
         ${SIM_SOURCES} ${CAREFUL_ROOT}/tests/sim/main.c)
  endif()
  # The analyzer stops after this many states of a function. tidy_long takes three times as long as
  # tidy. The analyzer's own limit, 225000, takes five times as long again and has found nothing
  # more.
  set(TIDY_NODES 5000)
  set(TIDY_LONG_NODES 40000)
  foreach(target tidy tidy_long)
    string(TOUPPER ${target}_NODES nodes)
    set(stamps)
    foreach(source ${TIDY_SOURCES})
      file(RELATIVE_PATH name ${CAREFUL_ROOT} ${source})
      string(MAKE_C_IDENTIFIER ${name} stamp)
      set(stamp ${CMAKE_CURRENT_BINARY_DIR}/${target}.d/${stamp})
      set(checks)
      foreach(arg -analyzer-config max-nodes=${${nodes}})
        list(APPEND checks --extra-arg=-Xclang --extra-arg=${arg})
      endforeach()
      if(name MATCHES "^tests/") # the analyzer takes most of the time, and sanitizers watch tests
        set(checks --checks=-clang-analyzer-*)
      endif()
      add_custom_command(
        OUTPUT ${stamp}
        COMMAND ${CAREFUL_CLANG_TIDY} --quiet ${checks} -p ${CMAKE_CURRENT_BINARY_DIR} ${source}
        COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
        DEPENDS ${source} ${TIDY_HEADERS} ${CAREFUL_ROOT}/.clang-tidy
        COMMENT "clang-tidy ${name}"
        VERBATIM)
      list(APPEND stamps ${stamp})
    endforeach()
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${target}.d)
    add_custom_target(${target} DEPENDS ${stamps})
  endforeach()
endif()
