// SPDX-License-Identifier: BSD-2-Clause
/* CRC32C by table and by the CPU's instruction, on the vectors of RFC 3720. */
#include "check.h"
#include "link/peer/crc32c.c" // NOLINT(bugprone-suspicious-include): both ways are static

/* RFC 3720 B.4: a SCSI Read (10) command PDU. */
static const uint8_t pdu[48] = {
	0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
	0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};

typedef uint32_t crc_fn(const uint8_t *p, uint32_t bytes);

static void expect_vectors(crc_fn *crc)
{
	uint8_t data[32] = { 0 };

	CHECK_EQ(crc(data, 0), 0);
	CHECK_EQ(crc((const uint8_t *)"123456789", 9), 0xe3069283);
	CHECK_EQ(crc(data, 32), 0x8a9136aa);
	memset(data, 0xff, sizeof(data));
	CHECK_EQ(crc(data, 32), 0x62a8ab43);
	for (uint32_t i = 0; i < 32; i++)
		data[i] = (uint8_t)i;
	CHECK_EQ(crc(data, 32), 0x46dd794e);
	for (uint32_t i = 0; i < 32; i++)
		data[i] = (uint8_t)(31 - i);
	CHECK_EQ(crc(data, 32), 0x113fdb5c);
	CHECK_EQ(crc(pdu, sizeof(pdu)), 0xd9963a56);
}

static uint32_t any_way(const uint8_t *p, uint32_t bytes)
{
	return link_crc32c(p, bytes);
}

static void test_table__known_vectors(void)
{
	expect_vectors(crc32c_table);
}

/* Computes each entry of the table bit by bit. */
static void test_table__each_entry(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
		CHECK_EQ(table[byte], crc);
	}
}

static void test_crc32c__known_vectors(void)
{
	expect_vectors(any_way);
}

static void test_instruction__equals_the_table_at_every_length_and_alignment(void)
{
	uint8_t data[1600 + 8];
	uint32_t state = 1;

	if (!cpu_has_crc())
		skip("this CPU has no CRC32C instruction");
	expect_vectors(crc32c_cpu);
	for (uint32_t i = 0; i < sizeof(data); i++) {
		state = state * 1664525 + 1013904223;
		data[i] = (uint8_t)(state >> 24);
	}
	for (uint32_t at = 0; at < 8; at++)
		for (uint32_t bytes = 0; bytes <= 1600; bytes++) {
			CHECK_EQ(crc32c_cpu(data + at, bytes), crc32c_table(data + at, bytes));
			CHECK_EQ(link_crc32c(data + at, bytes), crc32c_table(data + at, bytes));
		}
}

int main(void)
{
	RUN(test_table__known_vectors);
	RUN(test_table__each_entry);
	RUN(test_crc32c__known_vectors);
	RUN(test_instruction__equals_the_table_at_every_length_and_alignment);
	return 0;
}
