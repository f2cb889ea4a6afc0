//! Kernels of ours and unmodified programs, each of which runs in a process of its own with `warpbell-preload` under it.

mod meeting;
