//! Compiles `koi/v1/*.proto` without protoc and writes the descriptor set for reflection.

use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "common",
        "jobs",
        "plans",
        "ticks",
        "beliefs",
        "contrasts",
        "agents",
        "fleet",
        "admin",
        "performance",
    ]
    .map(|name| format!("koi/v1/{name}.proto"));
    for file in &files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(&files, ["."])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("koi_descriptor.bin"), descriptors.encode_to_vec())?;
    // Serialize gives `koi -o json` the published field names; a setting's value is written bare.
    tonic_prost_build::configure()
        .type_attribute(".koi.v1", "#[derive(serde::Serialize)]")
        .type_attribute(".koi.v1.Setting.value", "#[serde(untagged)]")
        .compile_fds(descriptors)?;
    Ok(())
}
