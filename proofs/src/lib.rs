//! Warpbell's layouts against software that nobody here wrote.
//!
//! The C programs in `c/` are oracles: each is compiled against somebody else's headers, tells its numbers as a
//! table of [`facts`], and builds bytes from the same inputs as `mlx5-wqe`. The tests compare.
//!
//! | oracle | headers | Debian package |
//! |---|---|---|
//! | `mlx5dv` | `infiniband/mlx5dv.h` | libibverbs-dev |
//! | `card` | `infiniband/{verbs,mlx5dv}.h`, as `host-init` calls them | libibverbs-dev |
//! | `kernel` | `include/linux/mlx5/{qp,device,cq,doorbell}.h` | linux-headers-*-common |
//! | `prm` | `include/linux/mlx5/mlx5_ifc.h` | linux-headers-*-common |
//!
//! `verbs`, `bounds` and `refused` are no oracles of a header but programs of libibverbs and libmlx5 themselves, `mpi` one of
//! MPI.
//!
//! A test whose oracle's headers are not installed is ignored, with the reason.

#[cfg(rdma_core_headers)]
pub mod bounds;
#[cfg(rdma_core_headers)]
pub mod card;
pub mod facts;
#[cfg(kernel_headers)]
pub mod kernel;
#[cfg(rdma_core_headers)]
pub mod mlx5dv;
pub mod namespace;
#[cfg(rdma_core_headers)]
pub mod ours;
pub mod pair;
pub mod preloaded;
#[cfg(kernel_headers)]
pub mod prm;
#[cfg(rdma_core_headers)]
pub mod refused;
pub mod request;
#[cfg(rdma_core_headers)]
pub mod verbs;
