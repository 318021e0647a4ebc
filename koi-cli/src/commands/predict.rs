//! `koi predict`: the surrogate's answer about one configuration or about every row of a table,
//! without a server.

mod batch;
mod models;
mod perf;
mod price;
mod settings;
mod target;
mod text;

use std::path::Path;

use koi_core::catalog::{Catalog, GpuType};
use koi_core::surrogate::measured_row::{LoadKind, MeasuredRow, Question, RowAnswer};
use koi_core::surrogate::points::MeasuredPoints;
use koi_core::surrogate::stack::{Calibration, StackPrediction};
use koi_core::surrogate::{Answer, EngineProfile, MemoryBreakdown, Prediction};
use koi_core::violation::{FieldViolation, Violations};
use serde::Serialize;

use crate::args::PredictArgs;
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, emit};
use models::ModelBook;
use settings::{SettingReport, Settings};

/// Runs the command.
pub(super) fn run(format: Format, args: &PredictArgs) -> anyhow::Result<()> {
    let mut models = ModelBook::open(args.models.as_deref())?;
    if let (Some(input), Some(output)) = (&args.batch, &args.out) {
        check_price(args.price)?;
        let points = perf::points(&mut models, args.perf.as_deref())?;
        points.complain();
        let question = (args.price, &points.points);
        return batch::run(format, &mut models, (input, output), question);
    }
    if args.out.is_some() {
        let why = "--out is where the predictions of --batch go, and there is no --batch";
        return Err(Failure::new(ExitCode::Invalid, why).into());
    }
    let one = one(&mut models, args)?;
    emit(format, &one, || text::one(&one))
}

fn check_price(usd: Option<f64>) -> Result<(), Failure> {
    let mut problems = Violations::default();
    if usd.is_some_and(|n| !(n > 0.0 && n <= MAX_PRICE)) {
        problems.add(
            "--price",
            format!("must be above 0 and at most {MAX_PRICE}"),
        );
    }
    let found = problems.finish(());
    found.map_err(|found| Failure::invalid("the options", found))
}

/// Highest price of a GPU-hour in USD.
const MAX_PRICE: f64 = 1e5;

/// The answer about one configuration.
#[derive(Debug, Serialize)]
struct One {
    model: String,
    gpu_type: String,
    n_gpus: u32,
    engine: String,
    load: String,
    /// Requests finished per second where a fixed number is in flight.
    #[serde(skip)]
    closed_rps: Option<f64>,
    /// Every variable of the analytic member.
    prediction: Prediction,
    /// What the settings of `--set` do, each by itself and all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<SettingReport>,
    /// The members' mixture, with intervals.
    stack: StackPrediction,
    /// What became of the rows of `--perf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_points: Option<perf::Report>,
    usd_per_gpu_hour: Option<f64>,
    usd_per_million_output_tokens: Option<f64>,
}

/// A model that is not to be had: refused, or a config file that is not there.
fn no_model(name: &str, problems: Vec<FieldViolation>) -> Failure {
    let is_missing_file = name.ends_with(".json") && !Path::new(name).exists();
    let mut failure = Failure::invalid(name, problems);
    if is_missing_file {
        failure.code = ExitCode::NotFound;
    }
    failure
}

fn one(models: &mut ModelBook, args: &PredictArgs) -> anyhow::Result<One> {
    let row = row(args)?;
    let facts = models
        .find(&row.model)
        .map_err(|problems| no_model(&row.model, problems))?;
    let gpu = gpu(&row.gpu_type).map_err(|message| Failure::new(ExitCode::Invalid, message))?;
    let mut question = Question::of(&row, &facts, gpu)
        .map_err(|message| Failure::new(ExitCode::Invalid, message))?;
    let profile = EngineProfile::embedded(question.generation);
    let plain = question.predict(gpu, profile);
    let settings = Settings::parse(&args.settings, &args.engine, &question)?;
    question.shape = settings.shape(&question);
    let prediction = match question.predict(gpu, profile) {
        Answer::Prediction(prediction) => prediction,
        Answer::DoesNotFit(memory) => {
            return Err(Failure::new(ExitCode::Failed, does_not_fit(&memory)).into());
        }
        Answer::Unsupported(why) => {
            return Err(Failure::new(ExitCode::Invalid, format!("not supported: {why}")).into());
        }
    };
    let report = settings.report(&plain, &prediction);
    let points = perf::points(models, args.perf.as_deref())?;
    let stack = stack(&question, gpu, &points.points)
        .map_err(|message| Failure::new(ExitCode::Failed, message))?;
    let n_gpus = question.shape.tp * question.shape.pp * question.n_replicas;
    let usd_per_gpu_hour = args.price.or_else(|| price::usd_per_gpu_hour(gpu));
    let tokens = stack.out_tok_s_system.map(|s| s.mixed.value);
    Ok(One {
        model: row.model.clone(),
        gpu_type: gpu.id.clone(),
        n_gpus,
        engine: question.generation.name().to_owned(),
        load: text::load(args, question.n_replicas - question.n_busy_replicas),
        closed_rps: tokens
            .filter(|_| args.concurrency.or(args.batch_size).is_some())
            .map(|tokens| tokens / args.osl),
        prediction,
        settings: report,
        stack,
        measured_points: args.perf.is_some().then_some(points.report),
        usd_per_gpu_hour,
        usd_per_million_output_tokens: price::per_million(usd_per_gpu_hour, n_gpus, tokens),
    })
}

/// The options as a row; all problems together.
fn row(args: &PredictArgs) -> Result<MeasuredRow, Failure> {
    let mut problems = Violations::default();
    let numbers = [
        ("--isl", Some(args.isl), 1e7),
        ("--osl", Some(args.osl), 1e7),
        ("--rate", args.rate, 1e6),
        ("--concurrency", args.concurrency.map(f64::from), 1e6),
        ("--batch-size", args.batch_size.map(f64::from), 1e6),
        ("--price", args.price, MAX_PRICE),
    ];
    for (option, number, max) in numbers {
        if number.is_some_and(|n| !(n > 0.0 && n <= max)) {
            problems.add(option, format!("must be above 0 and at most {max}"));
        }
    }
    let (kind, load) = match (args.concurrency, args.batch_size, args.offline) {
        (Some(n), _, _) => (LoadKind::Concurrency, Some(f64::from(n))),
        (_, Some(n), _) => (LoadKind::StaticBatch, Some(f64::from(n))),
        (_, _, true) => (LoadKind::Offline, None),
        _ => (LoadKind::RateRps, Some(args.rate.unwrap_or(1.0))),
    };
    let row = MeasuredRow {
        model: args.model.clone().unwrap_or_default(),
        gpu_type: args.gpu_type.clone().unwrap_or_default(),
        num_gpus: args
            .tp
            .checked_mul(args.pp)
            .and_then(|n| n.checked_mul(args.replicas)),
        tp: Some(args.tp),
        pp: Some(args.pp),
        ep: args.expert_parallel.then_some(args.tp),
        dp: None,
        engine: args.engine.clone(),
        engine_version: args.engine_version.clone(),
        year: None,
        weight_dtype: args.weight_dtype.clone(),
        kv_dtype: args.kv_dtype.clone(),
        isl: Some(args.isl),
        osl: Some(args.osl),
        load,
        load_kind: Some(kind),
        is_disaggregated: false,
        n_requests: None,
    };
    problems
        .finish(row)
        .map_err(|found| Failure::invalid("the options", found))
}

/// A GPU type by id or alias.
fn gpu(name: &str) -> Result<&'static GpuType, String> {
    let catalog = Catalog::embedded();
    catalog.gpu_type(name).ok_or_else(|| {
        let known: Vec<&str> = catalog.gpu_types().map(|g| g.id.as_str()).collect();
        format!(
            "GPU type {name:?} is not in the catalog; it has {}",
            known.join(", ")
        )
    })
}

/// The stack's answer, or why there is none. Without measured points neighbours are silent.
fn stack(
    question: &Question,
    gpu: &GpuType,
    points: &MeasuredPoints,
) -> Result<StackPrediction, String> {
    let calibration = Calibration::embedded();
    match question.ask(gpu, EngineProfile::embedded(question.generation)) {
        RowAnswer::Prediction(row) => {
            let voice = |q| points.voice((question, gpu), &row.situation, q, None);
            Ok(calibration.stack(&row, &gpu.id, question.generation, voice))
        }
        RowAnswer::DoesNotFit(memory) => Err(does_not_fit(&memory)),
        RowAnswer::Unsupported(why) => Err(why),
    }
}

/// The numbers of a refusal, in GiB per GPU.
fn does_not_fit(memory: &MemoryBreakdown) -> String {
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    format!(
        "does not fit: of {:.1} GiB allowed, weights take {:.1}, activations {:.1} and the runtime {:.1}; {:.0} cache tokens fit, {:.0} are needed",
        gib(memory.allowed_bytes),
        gib(memory.weights_bytes),
        gib(memory.activation_bytes),
        gib(memory.reserved_bytes),
        memory.kv_pool_tokens,
        memory.needed_tokens,
    )
}
