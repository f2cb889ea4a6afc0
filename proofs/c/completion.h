/* What a CQE says, in plain numbers in the host's order. src/mlx5dv.rs has the same structure. */
#ifndef WARPBELL_PROOFS_COMPLETION_H
#define WARPBELL_PROOFS_COMPLETION_H

#include <stdint.h>

struct completion {
	uint32_t opcode;
	uint32_t format;
	uint32_t solicited;
	uint32_t owner;
	uint32_t wqe_opcode;
	uint32_t qpn;
	uint32_t source_qpn;
	uint32_t user_index;
	uint32_t immediate;
	uint32_t byte_count;
	uint32_t wqe_counter;
	uint32_t signature;
	uint32_t syndrome;
	uint32_t vendor;
};

#endif
