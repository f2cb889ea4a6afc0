/* Stands in for the kernel's header: refcount_t is in ../kernel.h. */
