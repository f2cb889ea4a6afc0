/* A work request in plain numbers, in the host's order: what both sides build a WQE from.
 *
 * src/request.rs has the same structure.
 */
#ifndef WARPBELL_PROOFS_REQUEST_H
#define WARPBELL_PROOFS_REQUEST_H

#include <stdint.h>

/* Which parts follow the control segment, in this order; data segments come last. */
enum {
	HAS_DATAGRAM = 1,
	HAS_REMOTE = 2,
	HAS_ATOMIC = 4,
	HAS_INLINE = 8,
};

struct request {
	uint32_t parts;
	uint32_t immediate;
	uint32_t qpn;
	uint16_t index;
	uint8_t opcode;
	uint8_t modifier;
	uint8_t fm_ce_se;

	uint8_t stat_rate_sl;
	uint8_t fl_mlid;
	uint8_t tclass;
	uint8_t hop_limit;
	uint8_t rmac[6];
	uint8_t rgid[16];
	uint16_t rlid;
	uint32_t destination;
	uint32_t grh_gid_fl;
	uint64_t key;

	uint64_t remote_address;
	uint32_t remote_key;
	uint64_t swap_add;
	uint64_t compare;

	uint32_t inline_length;
	const uint8_t *inline_data;

	uint32_t segments;
	const struct {
		uint64_t address;
		uint32_t length;
		uint32_t key;
	} *segment;
};

#endif
