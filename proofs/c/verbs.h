/* What c/verbs.c takes and gives. src/verbs.rs has the same structures. */
#ifndef WARPBELL_PROOFS_VERBS_H
#define WARPBELL_PROOFS_VERBS_H

#include <stdint.h>

struct verbs;

struct verbs_path {
	uint32_t flow_label;
	uint8_t service_level;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t reserved;
	uint8_t gid[16];
};

struct verbs_options {
	uint32_t sends;
	uint32_t send_segments;
	uint32_t inline_bytes;
	uint32_t receives;
	uint32_t receive_segments;
	uint32_t completions;
	/* The completion queue's vector. */
	uint32_t vector;
	uint8_t datagrams;
	uint8_t shared;
	uint8_t signatures;
	/* The queue pair is left in reset. */
	uint8_t unconnected;
	/* No BlueFlame, and one send register alone. */
	uint8_t one_register;
	struct verbs_path path;
};

struct verbs_rings {
	void *send;
	void *receive;
	void *record;
	void *shared_record;
	void *doorbell;
	void *completions;
	void *completion_record;
	void *completion_uar;
	uint32_t send_blocks;
	uint32_t receive_stride;
	uint32_t receive_count;
	uint32_t doorbell_bytes;
	uint32_t completion_count;
	uint32_t qpn;
	uint32_t cqn;
};

struct verbs_segment {
	uint64_t address;
	uint32_t length;
	uint32_t key;
};

struct verbs_post {
	uint64_t id;
	uint64_t remote_address;
	uint64_t compare_add;
	uint64_t swap;
	uint32_t remote_key;
	uint32_t opcode;
	uint32_t flags;
	uint32_t immediate;
	uint32_t destination;
	uint32_t queue_key;
	/* The segments are bytes to copy, not memory with a key. */
	uint32_t inline_data;
	uint32_t segments;
	const struct verbs_segment *segment;
};

struct verbs_completion {
	uint64_t id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor;
	uint32_t bytes;
	uint32_t qpn;
	uint32_t flags;
	uint32_t immediate;
};

struct verbs *verbs_open(const struct verbs_options *options, int *error);
int verbs_close(struct verbs *v);
/* Closes the device and destroys nothing that was made with it. */
int verbs_abandon(struct verbs *v);
/* Brings the queue pair to RTS, connected with another. */
int verbs_connect(struct verbs *v, uint32_t destination);
/* State, peer and access flags as ibv_query_qp tells them. */
int verbs_query(struct verbs *v, uint32_t found[3]);
/* Puts the queue pair in error (1) or resets it (0). */
int verbs_stop(struct verbs *v, int error);
/* Registers memory with all rights; its keys. */
int verbs_register(struct verbs *v, void *start, uint64_t length, uint32_t keys[2]);
void verbs_rings(const struct verbs *v, struct verbs_rings *rings);
int verbs_post(struct verbs *v, const struct verbs_post *post);
int verbs_post_extended(struct verbs *v, const struct verbs_post *post);
/* Posts signalled writes of one segment, one after the other, each to where the one before ended. */
int verbs_write_many(struct verbs *v, const struct verbs_segment *local, uint64_t remote_address, uint32_t remote_key,
		     uint32_t count, int extended);
int verbs_receive(struct verbs *v, uint64_t id, uint32_t segments, const struct verbs_segment *segment);
int verbs_poll(struct verbs *v, struct verbs_completion *said);
int verbs_arm(struct verbs *v, int solicited_only);
/* Waits for an asynchronous event and acknowledges it: its type. ETIMEDOUT if there is none, ENOENT if it names neither
 * the queue pair nor the completion queue. */
int verbs_event(struct verbs *v, int milliseconds, uint32_t *kind);

#endif
