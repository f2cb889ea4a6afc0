use std::path::Path;

fn main() {
    let ptx = Path::new(&std::env::var("OUT_DIR").expect("Cargo says where")).join("kernels.ptx");
    let kernels = cuda_builder::CudaBuilder::new("kernels").copy_to(ptx);
    kernels.build().expect("the kernels compile");
}
