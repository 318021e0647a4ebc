//! One file per group of commands; here the dispatch and the commands that need no server.

mod beliefs;
mod catalog;
mod contrasts;
mod endpoints;
mod explain;
mod inspect_job;
mod jobs;
mod mechanisms;
mod metrics;
mod model;
mod nodes;
mod perf;
mod plans;
mod predict;
mod prices;
mod slow;
mod status;
mod submit;
mod ticks;
mod values;

pub use contrasts::{contrasts_of, contrasts_text};
pub use jobs::{job_grid, list_all as list_all_jobs};
pub use nodes::list_all as list_all_nodes;
pub use submit::{Submission, send as submit_spec};

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use clap::CommandFactory as _;
use koi_core::build::BUILD_ID;

use crate::args::{Cli, Command, Global, InspectArgs, Inspected, PerfCommand, TickCommand};
use crate::client::{Client, Target};
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, emit, print};
use crate::paths::DataDir;

/// A connection and the form of the output.
pub(crate) struct Context {
    /// Connection.
    pub(crate) client: Client,
    /// Form of the output.
    pub(crate) format: Format,
}

impl Context {
    async fn connect(global: &Global) -> anyhow::Result<Self> {
        let client = Client::connect(&Target::resolve(global)?).await?;
        Ok(Self {
            client,
            format: global.output,
        })
    }
}

/// Runs a command.
///
/// # Errors
/// What went wrong; a [`crate::failure::Failure`] where the exit code is not 1.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    let global = cli.global;
    match cli.command {
        Command::Up(args) => Box::pin(crate::up::run(&global, args)).await,
        Command::Down => Box::pin(crate::up::down(&global)).await,
        Command::Load(args) => Box::pin(crate::load::run(&global, args)).await,
        Command::Bench { args } => bench(&global, &args),
        Command::Model(command) => model::run(global.output, &command),
        Command::Metrics(command) => metrics::run(&global, &command),
        Command::Catalog(command) => catalog::run(global.output, &command),
        Command::Completions { shell } => completions(shell),
        Command::Version => version(&global).await,
        Command::Submit(args) => submit::run(&global, &args).await,
        Command::Predict(args) => predict::run(global.output, &args),
        Command::Perf(PerfCommand::Import(args)) => perf::import(&global, &args).await,
        Command::Prices(command) => prices::run(&global, &command).await,
        Command::Mechanisms(args) => mechanisms::run(&global, args).await,
        command => Box::pin(with_server(&global, command)).await,
    }
}

async fn with_server(global: &Global, command: Command) -> anyhow::Result<()> {
    let context = Context::connect(global).await?;
    match command {
        Command::Status => status::run(&context).await,
        Command::Jobs { all } => jobs::run(&context, all).await,
        Command::Inspect(args) => inspect(&context, args).await,
        Command::Explain { job } => explain::run(&context, &job).await,
        Command::Cancel { job, reason } => jobs::cancel(&context, &job, &reason).await,
        Command::Nodes { gpus } => nodes::run(&context, gpus).await,
        Command::Cordon(change) => nodes::cordon(&context, change, true).await,
        Command::Uncordon(change) => nodes::cordon(&context, change, false).await,
        Command::Drain(change) => nodes::drain(&context, change).await,
        Command::Ticks { limit } => ticks::run(&context, limit).await,
        Command::Tick(TickCommand::Run) => ticks::run_now(&context).await,
        Command::Beliefs(args) => beliefs::run(&context, args).await,
        Command::Slow(command) => slow::run(&context, &command).await,
        Command::Endpoints { job, watch } => endpoints::run(&context, &job, watch).await,
        Command::Perf(PerfCommand::Sources) => perf::sources(&context).await,
        Command::Perf(PerfCommand::List(args)) => perf::list(&context, &args).await,
        Command::Perf(PerfCommand::Import(_))
        | Command::Predict(_)
        | Command::Prices(_)
        | Command::Mechanisms(_)
        | Command::Up(_)
        | Command::Down
        | Command::Load(_)
        | Command::Bench { .. }
        | Command::Model(_)
        | Command::Metrics(_)
        | Command::Catalog(_)
        | Command::Completions { .. }
        | Command::Version
        | Command::Submit(_) => unreachable!("these commands are run without a connection"),
    }
}

async fn inspect(context: &Context, args: InspectArgs) -> anyhow::Result<()> {
    if args.over.is_some() && args.kind != Inspected::Job {
        return Err(Failure::new(ExitCode::Invalid, "--over is for jobs").into());
    }
    let is_numbered = matches!(args.kind, Inspected::Plan | Inspected::Tick);
    let Some(id) = args
        .id
        .as_deref()
        .or_else(|| is_numbered.then_some("latest"))
    else {
        let message = "name the job or node, e.g. `koi inspect job chat`";
        return Err(Failure::new(ExitCode::Invalid, message).into());
    };
    match args.kind {
        Inspected::Job => inspect_job::run(context, id, &args).await,
        Inspected::Plan => plans::inspect(context, id).await,
        Inspected::Tick => ticks::inspect(context, id).await,
        Inspected::Node => nodes::inspect(context, id).await,
    }
}

/// Becomes `koi-bench`; the data directory asked for travels in the environment.
fn bench(global: &Global, args: &[OsString]) -> anyhow::Result<()> {
    let program = crate::up::binaries::find("koi-bench")?;
    let data_dir = DataDir::resolve(global.data_dir.as_deref());
    let error = std::process::Command::new(&program)
        .args(args)
        .env("KOI_DATA_DIR", data_dir.path())
        .exec();
    Err(anyhow::anyhow!("run {}: {error}", program.display()))
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = vec![];
    clap_complete::generate(shell, &mut Cli::command(), "koi", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}

async fn version(global: &Global) -> anyhow::Result<()> {
    let server = server_build(global).await;
    let value = serde_json::json!({ "koi": BUILD_ID, "server": server });
    emit(global.output, &value, || {
        format!(
            "koi     {BUILD_ID}\nserver  {}",
            crate::output::escape(server.as_deref().unwrap_or("not reachable"))
        )
    })
}

async fn server_build(global: &Global) -> Option<String> {
    let client = Client::connect(&Target::resolve(global).ok()?).await.ok()?;
    let reply = client
        .admin()
        .get_status(koi_proto::v1::GetStatusRequest {})
        .await
        .ok()?;
    Some(reply.into_inner().build_id)
}
