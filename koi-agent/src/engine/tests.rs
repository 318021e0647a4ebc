//! Golden commands, and what can never become a word or a variable of one.

use std::path::PathBuf;

use koi_core::job::EngineName;

use super::*;
use crate::engine::vllm::{LoadFormat, VllmProgram};

fn launch(engine: EngineName) -> EngineLaunch {
    EngineLaunch {
        engine,
        model: "meta-llama/Llama-3.1-8B".to_owned(),
        served_model_name: "llama-8b".to_owned(),
        engine_args: vec![
            "--tensor-parallel-size=2".to_owned(),
            "--enforce-eager".to_owned(),
        ],
        host: "127.0.0.1".to_owned(),
        port: 18000,
        secondary_ports: vec![18001, 18002],
        gpu_uuids: vec!["GPU-a".to_owned(), "GPU-b".to_owned()],
        extra_env: BTreeMap::new(),
    }
}

fn settings(program: VllmProgram, cpu: Option<u32>) -> EngineSettings {
    EngineSettings {
        vllm: Some(VllmSettings {
            program,
            hf_home: None,
            cache_dir: None,
            cpu_kv_cache_gib: cpu,
            load_format: cpu.map(|_| LoadFormat::Dummy),
        }),
        sim: Some(SimSettings {
            program: "/koi/koi-engine-sim".into(),
            gpu_dir: "/gpus".into(),
        }),
    }
}

fn render(settings: &EngineSettings, launch: &EngineLaunch) -> EngineCommand {
    command(settings, launch, Path::new("/state/x")).unwrap()
}

#[test]
fn vllm_is_served_with_devices_by_uuid() {
    let settings = settings(VllmProgram::Command("/opt/venv/bin/vllm".into()), None);
    let got = render(&settings, &launch(EngineName::Vllm));
    assert_eq!(
        got.argv.join(" "),
        "/opt/venv/bin/vllm serve meta-llama/Llama-3.1-8B --served-model-name=llama-8b \
         --host=127.0.0.1 --port=18000 --tensor-parallel-size=2 --enforce-eager"
    );
    assert_eq!(got.env["CUDA_VISIBLE_DEVICES"], "GPU-a,GPU-b");
    assert_eq!(got.env["VLLM_PORT"], "18001");
    assert_eq!(got.env["HOME"], "/state/x");
    assert!(got.env["PATH"].starts_with("/opt/venv/bin:"));
}

#[test]
fn the_cpu_build_gets_a_cache_size_and_no_devices() {
    let settings = settings(VllmProgram::Python(PathBuf::from("/v/bin/python")), Some(1));
    let got = render(&settings, &launch(EngineName::Vllm));
    assert_eq!(
        got.argv[..4],
        [
            "/v/bin/python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model=meta-llama/Llama-3.1-8B"
        ]
    );
    assert!(got.argv.contains(&"--load-format=dummy".to_owned()));
    assert_eq!(got.env["VLLM_CPU_KVCACHE_SPACE"], "1");
    assert!(!got.env.contains_key("CUDA_VISIBLE_DEVICES"));
}

#[test]
fn the_simulated_engine_gets_the_same_words_and_a_folder() {
    let settings = settings(VllmProgram::Command("/x/vllm".into()), None);
    let got = render(&settings, &launch(EngineName::Sim));
    let real = render(&settings, &launch(EngineName::Vllm));
    assert_eq!(got.argv[1..], real.argv[1..]);
    assert_eq!(got.env["KOI_SIM_GPU_DIR"], "/gpus");
}

fn refused(change: impl FnOnce(&mut EngineLaunch)) -> Vec<String> {
    let mut launch = launch(EngineName::Sim);
    change(&mut launch);
    let settings = settings(VllmProgram::Command("/x/vllm".into()), None);
    match command(&settings, &launch, Path::new("/s")) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.into_iter().map(|p| p.field).collect(),
    }
}

#[test]
fn hazard_k6_no_word_can_smuggle_an_option() {
    for word in [
        "--middleware=os.system",
        "--host=0.0.0.0",
        "--port=1",
        "--api_key=x",
        "--load-format=pt",
        "--trust-remote-code",
        "--chat-template=/etc/passwd",
        "--tool_parser_plugin=/x.py",
        "-O3",
        "serve",
        "; rm -rf /",
        "--middlew=x",
        "--ssl-keyfile",
        "--worker-cls=evil.Worker",
        "--a\0b",
    ] {
        let fields = refused(|l| l.engine_args = vec![word.to_owned()]);
        assert_eq!(fields, ["engine_args[0]"], "{word}");
    }
    let ok = [
        "--max-num-seqs",
        "256",
        "--kv-cache-dtype=fp8",
        "--max-model-len=4096",
    ];
    assert!(refused(|l| l.engine_args = ok.map(str::to_owned).to_vec()).is_empty());
}

#[test]
fn hazard_k5_hostile_model_names_are_refused() {
    for name in [
        "",
        "-x",
        "../../etc",
        "a/../b",
        "a;b",
        "a b",
        "a\nb",
        "http://x/$(id)",
        "./a b",
        "é",
    ] {
        assert_eq!(refused(|l| l.model = name.to_owned()), ["model"], "{name}");
    }
}

#[test]
fn a_model_folder_may_lie_below_any_path() {
    for folder in [
        "/models/tiny",
        "/tmp/a b/k2/models/x--y",
        "/srv/Käfer/models",
        "/tmp/../tmp/it's \"here\"",
        "/-x",
    ] {
        let mut launch = launch(EngineName::Sim);
        launch.model = folder.to_owned();
        let settings = settings(VllmProgram::Command("/x/vllm".into()), None);
        let got = render(&settings, &launch);
        assert_eq!(got.argv[2], folder, "one word, as it is");
    }
    for folder in [
        "/a\nb".to_owned(),
        "/a\0b".to_owned(),
        format!("/{}", "x".repeat(4096)),
    ] {
        assert_eq!(
            refused(|l| l.model = folder.clone()),
            ["model"],
            "{folder:?}"
        );
    }
}

#[test]
fn hazard_k7_dangerous_variables_are_refused_and_all_problems_come_at_once() {
    for name in [
        "LD_PRELOAD",
        "PYTHONPATH",
        "http_proxy",
        "KOI_NONCE",
        "VLLM_SERVER_DEV_MODE",
    ] {
        let fields = refused(|l| {
            l.extra_env.insert(name.to_owned(), "x".to_owned());
        });
        assert_eq!(fields, [format!("extra_env.{name}")]);
    }
    let fields = refused(|l| {
        l.model = "../x".to_owned();
        l.host = "everywhere".to_owned();
        l.gpu_uuids.clear();
    });
    assert_eq!(fields, ["model", "host", "gpu_uuids"]);
}
