//! A second agent on one state folder: refused with a reason and the code for wrong settings.

use koi_agent::state_lock::StateLock;

use super::*;

#[tokio::test]
async fn a_second_agent_on_a_state_folder_ends_with_the_code_for_wrong_settings() {
    let host = Host::new();
    let root = host.root();
    let state_dir = root.join("state");
    std::fs::create_dir_all(&state_dir).unwrap();
    let settings = root.join("agent.toml");
    let text = format!(
        "host = \"h\"\nenvironment = \"reserved/aws/us-east-1/a/H100\"\ninstance_type = \"i\"\n\
         server = \"http://127.0.0.1:9\"\ntoken_file = \"t\"\nstate_dir = \"{}\"\n\
         advertise_address = \"127.0.0.1\"\nport_range = [20000, 20100]\n\
         [gpu]\nprobe = \"cpu\"\n[models]\nroot = \"m\"\n",
        state_dir.display()
    );
    std::fs::write(&settings, text).unwrap();
    let _first = StateLock::take(&state_dir).await.unwrap();
    let second = tokio::process::Command::new(env!("CARGO_BIN_EXE_koi-agent"))
        .arg("--config")
        .arg(&settings)
        .output();
    let second = second.await.unwrap();
    let words = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(78), "{words}");
    assert!(words.contains("another koi-agent (pid "), "{words}");
    assert!(words.contains(state_dir.to_str().unwrap()), "{words}");
}
