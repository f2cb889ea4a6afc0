/* What the mlx5 headers take from the rest of the kernel, as far as user space needs it.
 *
 * Types that only functions of the driver use are empty: no layout that is compared contains one. */
#ifndef WARPBELL_PROOFS_KERNEL_H
#define WARPBELL_PROOFS_KERNEL_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define __force
#define __iomem
#define __packed __attribute__((__packed__))

#define BITS_PER_LONG __LONG_WIDTH__
#define PAGE_SHIFT 12
#define PAGE_SIZE (1 << PAGE_SHIFT)
#define BIT(nr) (1UL << (nr))
#define BIT_ULL(nr) (1ULL << (nr))
#define BUILD_BUG_ON(condition) _Static_assert(!(condition), #condition)

#if __BYTE_ORDER == __LITTLE_ENDIAN
#undef __BIG_ENDIAN
#else
#undef __LITTLE_ENDIAN
#endif

#define cpu_to_be16(value) htobe16(value)
#define cpu_to_be32(value) htobe32(value)
#define cpu_to_be64(value) htobe64(value)
#define be16_to_cpu(value) be16toh(value)
#define be32_to_cpu(value) be32toh(value)
#define be64_to_cpu(value) be64toh(value)

/* One name for the members, and the members themselves. */
#define struct_group(NAME, MEMBERS...) \
	union { \
		struct { MEMBERS }; \
		struct { MEMBERS } NAME; \
	}
#define DECLARE_FLEX_ARRAY(TYPE, NAME) \
	struct { \
		struct { } empty_##NAME; \
		TYPE NAME[]; \
	}
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

struct list_head {
	struct list_head *next, *prev;
};
struct completion {
	u8 shim;
};
typedef struct {
	int shim;
} refcount_t;

static inline void refcount_inc(refcount_t *count)
{
	count->shim++;
}

static inline bool refcount_dec_and_test(refcount_t *count)
{
	return --count->shim == 0;
}

static inline void complete(struct completion *completion)
{
	completion->shim = 1;
}

#define KERN_WARNING ""
#define DUMP_PREFIX_OFFSET 0
#define print_hex_dump(...)

#define wmb() __sync_synchronize()

static inline void __raw_writeq(u64 value, volatile void *to)
{
	*(volatile u64 *)to = value;
}

#endif
