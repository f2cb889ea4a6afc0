//! Compiles the gallery's kernels for a GPU, with the feature `gpu`.

fn main() {
    warpbell_build::compile();
}
