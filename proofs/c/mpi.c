/* A program of MPI that checks what arrives: sums over all ranks, messages round a ring, and one-sided access to the next
 * rank's memory. Prints "right" on rank 0 if every byte is as it should be. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LONGEST (1 << 17)
#define ROUNDS 20

static int rank, ranks, wrong;

static void expect(int right, const char *what, long at)
{
	if (!right && wrong++ < 5)
		fprintf(stderr, "rank %d: %s is wrong at %ld\n", rank, what, at);
}

/* What a rank sends: differs by rank, place and round. */
static uint64_t word(int from, long at, int round)
{
	return (uint64_t)(from + 1) * 0x9e3779b97f4a7c15u + (uint64_t)at * 31 + (uint64_t)round;
}

static void sums(uint64_t *out, uint64_t *in)
{
	static const int lengths[] = { 1, 7, 1000, LONGEST };

	for (int round = 0; round < ROUNDS; round++) {
		int length = lengths[round % 4];

		for (long at = 0; at < length; at++)
			out[at] = word(rank, at, round);
		MPI_Allreduce(out, in, length, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
		for (long at = 0; at < length; at++) {
			uint64_t sum = 0;

			for (int from = 0; from < ranks; from++)
				sum += word(from, at, round);
			expect(in[at] == sum, "a sum", at);
		}
	}
}

static void ring(uint64_t *out, uint64_t *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

	for (int length = 1; length <= LONGEST; length *= 8) {
		for (long at = 0; at < length; at++)
			out[at] = word(rank, at, length);
		MPI_Sendrecv(out, length, MPI_UINT64_T, next, length, in, length, MPI_UINT64_T, before, length,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (long at = 0; at < length; at++)
			expect(in[at] == word(before, at, length), "a message", at);
	}
}

static void one_sided(uint64_t *out, uint64_t *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	long words = 5000;
	uint64_t *window, one = 1, old, none = 0;
	MPI_Win win;

	/* Three words for atomics on rank 0, and behind them what the rank before puts. */
	MPI_Win_allocate((words + 3) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	for (long at = 0; at < words + 3; at++)
		window[at] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (long at = 0; at < words; at++)
		out[at] = word(rank, at, 77);
	MPI_Put(out, words, MPI_UINT64_T, next, 3, words, MPI_UINT64_T, win);
	MPI_Win_flush(next, win);
	MPI_Get(in, words, MPI_UINT64_T, next, 3, words, MPI_UINT64_T, win);
	MPI_Win_flush(next, win);
	for (long at = 0; at < words; at++)
		expect(in[at] == out[at], "a get", at);
	for (int round = 0; round < 100; round++) {
		MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		expect(old < (uint64_t)ranks * 100, "a fetched sum", round);
	}
	/* One rank alone finds the word free. */
	uint64_t mine = (uint64_t)rank + 1;

	MPI_Compare_and_swap(&mine, &none, &old, MPI_UINT64_T, 0, 1, win);
	MPI_Win_flush(0, win);
	if (old == 0)
		MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, 0, 2, MPI_SUM, win);
	MPI_Win_flush_all(win);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (long at = 0; at < words; at++)
		expect(window[3 + at] == word(before, at, 77), "a put", at);
	if (rank == 0) {
		expect(window[0] == (uint64_t)ranks * 100, "the sum of all", 0);
		expect(window[1] >= 1 && window[1] <= (uint64_t)ranks, "the swapped word", 1);
		expect(window[2] == 1, "the number of swaps", 2);
	}
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
}

int main(int count, char **arguments)
{
	uint64_t *out = malloc(LONGEST * 8), *in = malloc(LONGEST * 8);
	int all;

	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	sums(out, in);
	ring(out, in);
	one_sided(out, in);
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s\n", all == 0 ? "right" : "wrong");
	MPI_Finalize();
	return all != 0;
}
