//! Every problem of a host's settings, by key.

use super::*;

/// A file that is right, with other text for some of its keys, and more lines at the top.
fn text(more: &str, gpu: &str) -> String {
    format!(
        "host = \"h\"\nenvironment = \"reserved/aws/us-east-1/a/H100\"\ninstance_type = \"i\"\n\
         server = \"http://127.0.0.1:7410\"\ntoken_file = \"t\"\nstate_dir = \"s\"\n\
         advertise_address = \"127.0.0.1\"\nport_range = [20000, 20100]\n{more}\n\
         [gpu]\n{gpu}\n[models]\nroot = \"m\"\n"
    )
}

fn fields(text: &str) -> Vec<String> {
    let found = AgentConfig::parse(text).err().unwrap_or_default();
    found.into_iter().map(|v| v.field).collect()
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = AgentConfig::parse(&text("", "probe = \"cpu\"")).unwrap();
    assert_eq!(config.metrics_listen.to_string(), "127.0.0.1:0");
    assert_eq!((config.nvlink, config.engines.sim), (false, false));
    assert_eq!(config.price(), None);
    assert_eq!(config.port_range, [20_000, 20_100]);
}

#[test]
fn every_problem_is_told_at_once() {
    let wrong = "host = \"No Name\"\nenvironment = \"rented/aws\"\nserver = \"http://192.0.2.2:1\"\n\
                 token_fil = \"t\"\nadvertise_address = \"here\"\nnvlink = 1\nport_range = [9, 9]\n\
                 price_usd_per_hour = nan\nmetrics_listen = \"0.0.0.0:1\"\n\
                 [gpu]\nprobe = \"nmvl\"\nsimdir = \"x\"\n\
                 [engines]\nvllm_command = \"vllm\"\nvllm_cpu_kv_cache_gib = 99999999999999999999\n\
                 vllm_load_format = \"dumy\"\n[model]\nroot = \"m\"\n";
    let want = [
        "host",
        "environment",
        "instance_type",
        "server",
        "token_file",
        "state_dir",
        "advertise_address",
        "price_usd_per_hour",
        "nvlink",
        "port_range",
        "metrics_listen",
        "gpu.probe",
        "gpu.simdir",
        "engines.vllm_command",
        "engines.vllm_cpu_kv_cache_gib",
        "engines.vllm_load_format",
        "models.root",
        "model",
        "token_fil",
    ];
    assert_eq!(fields(wrong), want);
    let found = AgentConfig::parse(wrong).unwrap_err();
    for (field, words) in [
        ("gpu.probe", "did you mean nvml?"),
        ("gpu.simdir", "did you mean sim_dir?"),
        ("token_fil", "did you mean token_file?"),
        ("model", "did you mean models?"),
        ("models.root", "is required"),
        ("engines.vllm_load_format", "did you mean dummy?"),
        ("price_usd_per_hour", "must be a number"),
    ] {
        let own = found.iter().find(|v| v.field == field).unwrap();
        assert!(own.message.contains(words), "{own:?}");
    }
}

#[test]
fn settings_that_belong_together_are_asked_for_together() {
    for (more, gpu, want) in [
        ("", "probe = \"sim\"", "gpu.sim_dir"),
        ("price_usd_per_hour = 5", "probe = \"cpu\"", "price_source"),
        (
            "price_usd_per_hour = -5\nprice_source = \"list\"",
            "probe = \"cpu\"",
            "price_usd_per_hour",
        ),
        (
            "",
            "probe = \"cpu\"\n[engines]\nvllm_command = \"/bin/vllm\"",
            "engines.vllm_cpu_kv_cache_gib",
        ),
        (
            "",
            "probe = \"nvml\"\n[engines]\nvllm_command = \"/a\"\nvllm_python = \"/b\"",
            "engines.vllm_command",
        ),
        ("", "probe = \"cpu\"\n[engine]\nsim = true", "engine"),
        ("gpus = 8", "probe = \"cpu\"", "gpus"),
    ] {
        assert_eq!(fields(&text(more, gpu)), [want], "{more} {gpu}");
    }
    let sound =
        "probe = \"cpu\"\n[engines]\nvllm_command = \"/bin/vllm\"\nvllm_cpu_kv_cache_gib = 4";
    assert_eq!(fields(&text("", sound)), [""; 0]);
}

#[test]
fn ports_are_two_numbers_with_room_between() {
    let with = |range: &str| {
        let right = text("", "probe = \"cpu\"");
        fields(&right.replace("[20000, 20100]", range))
    };
    for range in [
        "[0, 100]",
        "[1, 8]",
        "[9, 1]",
        "[1, 65536]",
        "[1]",
        "5",
        "[\"1\", 20]",
    ] {
        assert_eq!(with(range), ["port_range"], "{range}");
    }
    assert_eq!(with("[1, 9]"), [""; 0]);
    assert_eq!(with("[1, 65535]"), [""; 0]);
}
