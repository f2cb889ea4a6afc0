//! Sources that are written for `warpbell`, compiled with cuda_std under that name: they agree on every path.

#[path = "../../src/checksum.rs"]
pub mod checksum;
#[path = "../../../device/tests/all/cuda_std_paths.rs"]
pub mod paths;
