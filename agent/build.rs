//! Build script: compiles `proto/` without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_file("lattice/checkpoint/v1/checkpoint.proto")?;
    let build = tonic_prost_build::configure().build_client(false);
    build.compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
