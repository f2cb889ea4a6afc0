/* A program of UCX that checks what arrives: two processes, each of which sends the other tagged and active messages,
 * writes and reads its memory, and changes words of it by atomics. Prints "right" if every byte is as it should be. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#define LONGEST (1 << 20)
/* Bytes behind a message that stay as they are. */
#define GUARD 64
#define UNTOUCHED 0xa5
#define ATOMICS 200
#define SECONDS 60
#define HANDLER 3

static const size_t lengths[] = { 1, 8, 100, 1000, 8192, 65536, LONGEST };
#define LENGTHS (sizeof(lengths) / sizeof(*lengths))

static int side, other, wrong;
static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h peer;
static uint8_t *out, *in, *window;
static uint64_t their_window;
static ucp_rkey_h their_key;
static ucp_mem_h own_memory;

/* The active message that came last: its bytes in all, and the descriptor where they are still to be fetched. */
static struct {
	int is_there;
	uint64_t round;
	size_t length;
	void *descriptor;
} arrived;

static void must(ucs_status_t status, const char *what)
{
	if (status == UCS_OK)
		return;
	fprintf(stderr, "side %d: %s: %s\n", side, what, ucs_status_string(status));
	exit(1);
}

static void expect(int right, const char *what, size_t at)
{
	if (!right && wrong++ < 5)
		fprintf(stderr, "side %d: %s is wrong at %zu\n", side, what, at);
}

/* What a side sends: differs by side, place and round. */
static uint8_t byte(int from, size_t at, uint64_t round)
{
	return (uint8_t)(((uint64_t)from + 1) * 0x9d + at * 0x1f + (at >> 8) * 0x35 + round * 0x4b);
}

static void fill(uint8_t *bytes, size_t length, uint64_t round)
{
	for (size_t at = 0; at < length; at++)
		bytes[at] = byte(side, at, round);
}

static void check(const uint8_t *bytes, size_t length, int from, uint64_t round, const char *what)
{
	for (size_t at = 0; at < length; at++)
		expect(bytes[at] == byte(from, at, round), what, at);
	for (size_t at = length; at < length + GUARD; at++)
		expect(bytes[at] == UNTOUCHED, what, at);
}

static void finish(ucs_status_ptr_t request, const char *what)
{
	if (UCS_PTR_IS_ERR(request))
		must(UCS_PTR_STATUS(request), what);
	if (!UCS_PTR_IS_PTR(request))
		return;
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	must(ucp_request_check_status(request), what);
	ucp_request_free(request);
}

static void flush(void)
{
	ucp_request_param_t none = { 0 };

	finish(ucp_ep_flush_nbx(peer, &none), "a flush");
}

/* Waits for the other side, and does its work meanwhile. */
static void together(void)
{
	struct pollfd ready = { .fd = other, .events = POLLIN };
	char word = 0;

	if (write(other, &word, 1) != 1)
		exit(1);
	while (poll(&ready, 1, 0) == 0)
		ucp_worker_progress(worker);
	if (read(other, &word, 1) != 1)
		exit(1);
}

/* Gives the other side bytes, and gets its own. */
static void *exchange(const void *own, size_t length)
{
	uint64_t theirs = length;
	char *bytes;

	if (write(other, &theirs, sizeof(theirs)) != sizeof(theirs) ||
	    write(other, own, length) != (ssize_t)length || read(other, &theirs, sizeof(theirs)) != sizeof(theirs))
		exit(1);
	bytes = malloc(theirs);
	if (recv(other, bytes, theirs, MSG_WAITALL) != (ssize_t)theirs)
		exit(1);
	return bytes;
}

static ucs_status_t hear(void *nothing, const void *header, size_t header_length, void *data, size_t length,
			 const ucp_am_recv_param_t *how)
{
	(void)nothing;
	expect(!arrived.is_there && header_length == sizeof(arrived.round), "an active message's header", 0);
	memcpy(&arrived.round, header, sizeof(arrived.round));
	arrived.length = length;
	arrived.is_there = 1;
	if (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
		arrived.descriptor = data;
		return UCS_INPROGRESS;
	}
	memcpy(in, data, length);
	return UCS_OK;
}

static void set_up(void)
{
	ucp_params_t wanted = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM };
	ucp_worker_params_t single = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				       .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_am_handler_param_t handler = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
					   .id = HANDLER,
					   .cb = hear };
	ucp_ep_params_t to = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_mem_map_params_t memory = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
					.length = LONGEST + GUARD };
	uint64_t *place, own_place;
	ucp_address_t *address;
	ucp_config_t *config;
	size_t length;
	void *key;

	must(ucp_config_read(NULL, NULL, &config), "the settings");
	must(ucp_init(&wanted, config, &context), "a context");
	ucp_config_release(config);
	must(ucp_worker_create(context, &single, &worker), "a worker");
	must(ucp_worker_set_am_recv_handler(worker, &handler), "a handler");
	must(ucp_worker_get_address(worker, &address, &length), "an address");
	to.address = exchange(address, length);
	must(ucp_ep_create(worker, &to, &peer), "an endpoint");
	memory.address = window;
	must(ucp_mem_map(context, &memory, &own_memory), "registered memory");
	must(ucp_rkey_pack(context, own_memory, &key, &length), "a key");
	must(ucp_ep_rkey_unpack(peer, exchange(key, length), &their_key), "the other's key");
	own_place = (uintptr_t)window;
	place = exchange(&own_place, sizeof(own_place));
	their_window = *place;
}

static void tagged(size_t length, uint64_t round)
{
	ucp_request_param_t none = { 0 };
	ucs_status_ptr_t receive;

	memset(in, UNTOUCHED, length + GUARD);
	receive = ucp_tag_recv_nbx(worker, in, length, round, UINT64_MAX, &none);
	fill(out, length, round);
	finish(ucp_tag_send_nbx(peer, out, length, round, &none), "a tagged send");
	finish(receive, "a tagged receive");
	check(in, length, !side, round, "a tagged message");
	together();
}

static void active(size_t length, uint64_t round)
{
	ucp_request_param_t none = { 0 };
	ucs_status_ptr_t request;

	memset(in, UNTOUCHED, length + GUARD);
	together();
	fill(out, length, round);
	request = ucp_am_send_nbx(peer, HANDLER, &round, sizeof(round), out, length, &none);
	while (!arrived.is_there)
		ucp_worker_progress(worker);
	expect(arrived.length == length && arrived.round == round, "an active message's length", arrived.length);
	if (arrived.descriptor)
		finish(ucp_am_recv_data_nbx(worker, arrived.descriptor, in, length, &none), "an active message's data");
	finish(request, "an active message");
	check(in, length, !side, round, "an active message");
	memset(&arrived, 0, sizeof(arrived));
	together();
}

static void put_and_get(size_t length, uint64_t round)
{
	ucp_request_param_t none = { 0 };

	memset(window, UNTOUCHED, length + GUARD);
	together();
	fill(out, length, round);
	finish(ucp_put_nbx(peer, out, length, their_window, their_key, &none), "a put");
	flush();
	together();
	check(window, length, !side, round, "a put");
	memset(in, UNTOUCHED, length + GUARD);
	finish(ucp_get_nbx(peer, in, length, their_window, their_key, &none), "a get");
	flush();
	check(in, length, side, round, "a get");
	together();
}

/* Carries an atomic out on the first word of the other's window; gives what it found. */
static uint64_t atomic(ucp_atomic_op_t what, uint64_t operand, uint64_t reply)
{
	ucp_request_param_t how = { .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
				    .datatype = ucp_dt_make_contig(sizeof(operand)),
				    .reply_buffer = &reply };

	finish(ucp_atomic_op_nbx(peer, what, &operand, 1, their_window, their_key, &how), "an atomic");
	return reply;
}

static void atomics(void)
{
	const uint64_t step = 0x100000001, start = (uint64_t)-7;
	uint64_t *words = (uint64_t *)window, now = start;

	words[0] = start;
	words[1] = 0x5555;
	together();
	for (int round = 0; round < ATOMICS; round++, now += step)
		expect(atomic(UCP_ATOMIC_OP_ADD, step, 0) == now, "a fetched sum", round);
	for (int round = 0; round < ATOMICS; round++) {
		/* Every third expects another value, and changes nothing. */
		uint64_t expected = round % 3 == 2 ? now + 1 : now, next = now ^ (uint64_t)round << 32;

		expect(atomic(UCP_ATOMIC_OP_CSWAP, expected, next) == now, "a compared word", round);
		now = expected == now ? next : now;
	}
	flush();
	together();
	expect(words[0] == now, "the word in the end", 0);
	expect(words[1] == 0x5555, "the word behind it", 1);
}

static int run(void)
{
	int theirs;

	alarm(SECONDS);
	out = malloc(LONGEST);
	in = malloc(LONGEST + GUARD);
	window = aligned_alloc(4096, LONGEST + 4096);
	set_up();
	for (size_t at = 0; at < LENGTHS; at++)
		for (uint64_t round = 0; round < 5; round++) {
			tagged(lengths[at], round);
			active(lengths[at], round + 10);
			put_and_get(lengths[at], round + 20);
		}
	atomics();
	/* Until the answers to the other side's last requests are acknowledged: over datagrams UCX would wait half a minute
	 * for who is gone. */
	flush();
	together();
	theirs = *(int *)exchange(&wrong, sizeof(wrong));
	ucp_rkey_destroy(their_key);
	ucp_mem_unmap(context, own_memory);
	ucp_ep_destroy(peer);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	return wrong + theirs != 0;
}

int main(void)
{
	int ends[2], status, failed;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return 1;
	child = fork();
	if (child < 0)
		return 1;
	side = child == 0;
	other = ends[side];
	close(ends[!side]);
	failed = run();
	if (side)
		return failed;
	waitpid(child, &status, 0);
	failed |= status != 0;
	printf("%s\n", failed ? "wrong" : "right");
	return failed;
}
