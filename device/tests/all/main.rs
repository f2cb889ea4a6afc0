//! The library's tests: on a CPU, under miri, and as models under loom (`--cfg loom`), where no other test is built.

mod common;
mod completion_queue;
mod completions;
mod cuda_std_paths;
mod doorbell_page;
mod groups;
mod indices;
mod loom_completion_queue;
mod loom_receive;
mod loom_send;
mod processors;
mod ready;
mod receive;
mod refused;
mod ring;
mod segmented;
mod send;
mod traced;
