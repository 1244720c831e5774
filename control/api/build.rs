//! Build script: compiles `proto/` without protoc.

use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true);
    for file in ["lattice.proto", "conformance.proto", "problem.proto"] {
        compiler.open_file(format!("lattice/v1/{file}"))?;
    }
    // File descriptor set for gRPC reflection.
    let described = PathBuf::from(env::var("OUT_DIR")?).join("lattice.bin");
    fs::write(described, compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
