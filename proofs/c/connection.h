/* What the commands of a reliable connection are built from. src/prm.rs has the same structure. */
#ifndef WARPBELL_PROOFS_CONNECTION_H
#define WARPBELL_PROOFS_CONNECTION_H

#include <stdint.h>

struct connection {
	uint64_t record;
	uint32_t cqn;
	uint32_t qpn;
	uint32_t remote_qpn;
	uint32_t pd;
	uint32_t uar;
	uint32_t eqn;
	uint32_t user_index;
	uint32_t psn;
	uint32_t flow_label;
	uint16_t pkey_index;
	uint16_t lid;
	uint16_t udp_sport;
	uint8_t ethernet;
	uint8_t log_size;
	uint8_t log_reads;
	uint8_t port;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint8_t service_level;
	uint8_t traffic_class;
	uint8_t min_rnr_nak;
	uint8_t ack_timeout;
	uint8_t mac[6];
	uint8_t gid[16];
};

#endif
