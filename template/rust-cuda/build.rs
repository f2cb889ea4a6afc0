use std::path::Path;

fn main() {
    let ptx = Path::new(&std::env::var("OUT_DIR").expect("Cargo says where")).join("kernels.ptx");
    // rustc's jump threading copies a barrier into both arms of a branch that follows, and threads that are to meet part.
    let no_jump_threading = "profile.release.rustflags=[\"-Zmir-enable-passes=-JumpThreading\"]";
    let kernels = cuda_builder::CudaBuilder::new("kernels")
        .build_args(&["-Zprofile-rustflags", "--config", no_jump_threading])
        .copy_to(ptx);
    kernels.build().expect("the kernels compile");
}
