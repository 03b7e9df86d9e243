/* SPDX-License-Identifier: BSD-2-Clause */
/* A statically defined probe: a nop, and an ELF note with the probe's address, name, counter of
 * listeners and location of the argument. Format:
 * sourceware.org/systemtap/wiki/UserSpaceProbeImplementation. The build needs no <sys/sdt.h>. */
#pragma once

/* The argument is in the register of a call's first argument, as BPF programs expect. On x86-64 the
 * nop has five bytes, because Linux 6.18 replaces such a nop by a call, not a trap. */
#if defined(__x86_64__)
#define SDT_NOP ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
#define SDT_ARGUMENT "8@%%rdi"
#define SDT_REGISTER "rdi"
#elif defined(__aarch64__)
#define SDT_NOP "nop"
#define SDT_ARGUMENT "8@x0"
#define SDT_REGISTER "x0"
#endif

#ifdef SDT_NOP

/* Fires a probe with `pointer`. `semaphore`: an assembler expression for a 16-bit word in section
 * .probes, above 0 while a tracer listens. The address of _.stapsdt.base shows a tracer how far
 * prelink moved the text. */
#define SDT_PROBE(provider, name, semaphore, pointer)                                             \
	do {                                                                                      \
		register const void *sdt_argument __asm__(SDT_REGISTER) = (pointer);              \
		__asm__ volatile(                                                                 \
			"990: " SDT_NOP "\n"                                                      \
			".pushsection .note.stapsdt, \"\", %%note\n"                              \
			".balign 4\n"                                                             \
			".4byte 992f - 991f, 994f - 993f, 3\n"                                    \
			"991: .asciz \"stapsdt\"\n"                                               \
			"992: .balign 4\n"                                                        \
			"993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                       \
			".asciz \"" provider "\"\n"                                               \
			".asciz \"" name "\"\n"                                                   \
			".asciz \"" SDT_ARGUMENT "\"\n"                                           \
			"994: .balign 4\n"                                                        \
			".popsection\n"                                                           \
			".ifndef _.stapsdt.base\n"                                                \
			".pushsection .stapsdt.base, \"aG\", %%progbits, .stapsdt.base, comdat\n" \
			".weak _.stapsdt.base\n"                                                  \
			".hidden _.stapsdt.base\n"                                                \
			"_.stapsdt.base: .space 1\n"                                              \
			".size _.stapsdt.base, 1\n"                                               \
			".popsection\n"                                                           \
			".endif\n"                                                                \
			: /* no outputs */                                                        \
			: "r"(sdt_argument)                                                       \
			: "memory");                                                              \
	} while (0)

#else /* other machines have no probes, and `carefulctl trace` says so */

#define SDT_PROBE(provider, name, semaphore, pointer) ((void)(pointer))

#endif
