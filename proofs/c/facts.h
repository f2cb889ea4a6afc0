/* What an oracle tells of its headers: a table of names and numbers, ended by a name of NULL.
 *
 * SIZE(s)       sizeof of a structure, as "s"
 * FIELD(s, f)   offset and size of a field, in bytes, as "s.f" and "s.f size"
 * VALUE(v)      an enum value or a constant, as "v"
 */
#ifndef WARPBELL_PROOFS_FACTS_H
#define WARPBELL_PROOFS_FACTS_H

#include <stddef.h>
#include <stdint.h>

struct fact {
	const char *name;
	uint64_t value;
};

#define SIZE(s) { #s, sizeof(struct s) }
#define FIELD(s, f) \
	{ #s "." #f, offsetof(struct s, f) }, \
	{ #s "." #f " size", sizeof(((struct s *)0)->f) }
#define VALUE(v) { #v, (uint64_t)(v) }
#define END { 0, 0 }

#endif
