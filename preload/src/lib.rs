//! A library to preload (`LD_PRELOAD`) under unmodified rdma-core: libibverbs and libmlx5 then see an mlx5
//! device, `mlx5_0`, that is not there.
//!
//! | file | its one job |
//! |---|---|
//! | `interpose` | the functions of the C library that it takes over |
//! | `paths` | those of them that take a path |
//! | `next` | those functions themselves, behind ours |
//! | `device_file` | which file descriptors are the device |
//! | `descriptors` | a set of file descriptors |
//! | `netlink` | the answers of RDMA netlink |
//! | `sysfs` | the tree of text files in which libibverbs looks for devices |
//! | `attributes` | the form of an ioctl: object, method, attributes |
//! | `abi` | the structures of uverbs, as far as they are needed |
//! | `uverbs` | what a command does; `uverbs::devx`, `umem`, `prm` and `counters` the commands to the card |
//! | `machine` | the software HCA behind the device, and its links to those of other processes |
//! | `port` | what the device's port is |
//! | `wires` | by which wires it reaches others, and from which IP addresses |
//! | `link_mtu` | how long packets of a network interface may be |
//! | `lacks` | what the device lacks on demand |
//! | `events` | completion channels, and the engine's events in them |
//! | `async_events` | errors of queues that no completion tells |
//! | `channel` | the pipes of both |
//!
//! Behind the device is a software HCA, one for each process, which a thread drives, and the program's own threads while
//! they post and poll. It has RC, UC and UD queue pairs. They reach those of the same process and of the same user's
//! others by a GID of the HCA's own. Where the environment variable `WARPBELL_ADDRESS` names IP addresses, networks
//! or interfaces, they reach those of other machines as well, by RoCE v2; the GIDs are then IP addresses. `WARPBELL_WIRE`
//! (`shm` or `roce`) leaves one of the two.
//!
//! Where `WARPBELL_ENGINE` is `off` there is no HCA: queues are created and numbered, and what libmlx5 posts stays in
//! their rings as posted, to be compared with ours. Commands that the device does not have answer `EOPNOTSUPP`.
//!
//! It interposes by defining functions of the C library's names, so that no program may link it; load it with
//! `LD_PRELOAD`.

mod abi;
mod async_events;
mod attributes;
mod channel;
mod descriptors;
mod device_file;
mod devx_events;
mod events;
pub mod interpose;
mod lacks;
mod libmlx5;
mod link_mtu;
mod machine;
mod netlink;
mod next;
pub mod paths;
mod port;
mod sysfs;
mod uverbs;
mod wires;
