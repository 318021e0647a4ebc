//! A price feed against a real server: what is refused whole, what the next plan makes of a price,
//! and that it outlives the server.

use koi_cli::client::{Client, idempotency_key};
use koi_proto::v1;
use tonic::{Code, Status};

use super::hostile::{fields, good, operator_token, target};
use super::koi::Koi;

fn row(instance: &str, usd_per_hour: f64) -> v1::PriceRow {
    v1::PriceRow {
        cloud: "aws".to_owned(),
        region: "us-east-1".to_owned(),
        market: "on_demand".to_owned(),
        instance: instance.to_owned(),
        usd_per_hour: Some(usd_per_hour),
    }
}

fn feed(prices: Vec<v1::PriceRow>) -> v1::UpdatePricesRequest {
    v1::UpdatePricesRequest {
        idempotency_key: idempotency_key(),
        source: "a test".to_owned(),
        date: "2026-11-29".to_owned(),
        prices,
        validate_only: false,
    }
}

async fn update(
    client: &Client,
    request: v1::UpdatePricesRequest,
) -> Result<v1::UpdatePricesReply, Status> {
    Ok(client.fleet().update_prices(request).await?.into_inner())
}

async fn fed(client: &Client, size: u32) -> Vec<v1::HeldPrice> {
    let (mut prices, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListPricesRequest {
            page: Some(v1::PageRequest { size, token }),
            origin: "feed".to_owned(),
            ..v1::ListPricesRequest::default()
        };
        let reply = client
            .fleet()
            .list_prices(request)
            .await
            .unwrap()
            .into_inner();
        prices.extend(reply.prices);
        token = reply.page.unwrap().next_token;
        if token.is_empty() {
            return prices;
        }
    }
}

async fn refuses(client: &Client) {
    let mut all_wrong = feed(vec![
        row("p5.48xlarge", f64::NAN),
        row("p5.48xlarge", 3.0),
        row("g6e.12xlarge", -1.0),
        row("g5.xlarge", 1e9),
        v1::PriceRow {
            market: "sometimes".to_owned(),
            usd_per_hour: None,
            ..row("g6.xlarge", 1.0)
        },
    ]);
    all_wrong.date = "2031-01-01".to_owned();
    all_wrong.source = String::new();
    let status = update(client, all_wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let named = fields(&status);
    for field in [
        "source",
        "price[0].usd_per_hour",
        "price[1]",
        "price[2].usd_per_hour",
        "price[3].usd_per_hour",
        "price[4].market",
        "price[4].usd_per_hour",
    ] {
        assert!(named.iter().any(|f| f == field), "{field} in {named:?}");
    }
    let mut future = feed(vec![row("g5.xlarge", 1.0)]);
    future.date = "2031-01-01".to_owned();
    let named = fields(&update(client, future).await.unwrap_err());
    assert_eq!(named, ["date"]);
    let many = (0..20_000).map(|i| row(&format!("m{i}"), 1.0)).collect();
    let named = fields(&update(client, feed(many)).await.unwrap_err());
    assert_eq!(named, ["price"]);
    let flood = (0..100_000).map(|i| row(&format!("m{i}"), 1.0)).collect();
    let status = update(client, feed(flood)).await.unwrap_err();
    let refused = [Code::OutOfRange, Code::ResourceExhausted];
    assert!(refused.contains(&status.code()), "{status:?}");
    let mut dry = feed(vec![row("g5.xlarge", 1.0)]);
    dry.validate_only = true;
    assert_eq!(update(client, dry).await.unwrap().n_added, 1);
    assert_eq!(fed(client, 10).await, [], "nothing is half-stored");
}

/// Many at once under one key: one is done, all get its answer.
async fn answers_alike(client: &Client) {
    let mut changed = feed((0..3).map(|i| row(&format!("alike-{i}"), 2.0)).collect());
    update(client, changed.clone()).await.unwrap();
    changed.idempotency_key = idempotency_key();
    for price in &mut changed.prices {
        price.usd_per_hour = Some(3.0);
    }
    let tries = (0..8).map(|_| {
        let (client, request) = (client.clone(), changed.clone());
        tokio::spawn(async move { update(&client, request).await.unwrap() })
    });
    for tried in tries.collect::<Vec<_>>() {
        assert_eq!(tried.await.unwrap().n_replaced, 3);
    }
    // What changed nothing is answered alike as well, whatever came between.
    let (same, mut between) = (feed(changed.prices.clone()), feed(changed.prices));
    assert_eq!(update(client, same.clone()).await.unwrap().n_unchanged, 3);
    between.prices[0].usd_per_hour = Some(4.0);
    assert_eq!(update(client, between).await.unwrap().n_replaced, 1);
    assert_eq!(update(client, same).await.unwrap().n_unchanged, 3);
}

async fn removed(client: &Client, request: &v1::RemovePricesRequest) -> Result<u64, Status> {
    let reply = client.fleet().remove_prices(request.clone()).await?;
    Ok(reply.into_inner().n_removed)
}

/// Takes out what `answers_alike` left; list prices and other rows of the feed stay.
async fn takes_out(client: &Client, kept: usize) {
    let nothing_named = v1::RemovePricesRequest::default();
    let status = removed(client, &nothing_named).await.unwrap_err();
    assert_eq!(fields(&status), ["all"]);
    let mut one = v1::RemovePricesRequest {
        idempotency_key: idempotency_key(),
        instance: "alike-1".to_owned(),
        reason: "a slip".to_owned(),
        validate_only: true,
        ..v1::RemovePricesRequest::default()
    };
    assert_eq!(removed(client, &one).await.unwrap(), 1);
    assert_eq!(fed(client, 100).await.len(), kept + 3, "a dry run");
    one.validate_only = false;
    assert_eq!(removed(client, &one).await.unwrap(), 1);
    assert_eq!(removed(client, &one).await.unwrap(), 1, "the first answer");
    for instance in ["alike-0", "alike-2"] {
        let other = v1::RemovePricesRequest {
            idempotency_key: idempotency_key(),
            instance: instance.to_owned(),
            ..v1::RemovePricesRequest::default()
        };
        assert_eq!(removed(client, &other).await.unwrap(), 1);
    }
    assert_eq!(fed(client, 100).await.len(), kept);
}

/// What the newest plan knows of a job's options, and the tick of its prices.
async fn tick(client: &Client) -> v1::Tick {
    let request = v1::RunTickRequest {
        idempotency_key: idempotency_key(),
    };
    let reply = client.ticks().run_tick(request).await.unwrap().into_inner();
    reply.tick.unwrap()
}

fn held(tick: &v1::Tick, instance: &str) -> f64 {
    let price = tick.prices.iter().find(|p| p.instance == instance);
    price.unwrap().usd_per_hour
}

/// USD per hour of every option that explain shows for a job which the last tick placed.
async fn options(client: &Client, job: &str) -> Vec<f64> {
    let request = v1::ExplainJobRequest {
        job: job.to_owned(),
    };
    let reply = client.jobs().explain_job(request).await;
    let reply = reply.unwrap().into_inner();
    assert_eq!(reply.action, "place", "{}", reply.rationale);
    let lines = reply.not_chosen.iter();
    lines.filter_map(|o| o.usd_per_hour).collect()
}

async fn submit(client: &Client, name: &str) {
    let submit = v1::SubmitJobRequest {
        idempotency_key: idempotency_key(),
        spec: Some(v1::JobSpec {
            name: name.to_owned(),
            ..good()
        }),
        validate_only: false,
    };
    client.jobs().submit_job(submit).await.unwrap();
}

#[tokio::test]
async fn a_price_is_refused_whole_or_used_by_the_next_plan_and_kept() {
    let koi = tokio::task::spawn_blocking(|| {
        let koi = Koi::new("prices");
        let up = koi.up_with(&["--no-jobs".into()]);
        assert_eq!(up.code, Some(0), "{}{}", up.out, up.err);
        koi
    });
    let koi = koi.await.unwrap();
    let connect = async |koi: &Koi| {
        let target = target(koi, Some(operator_token(koi)));
        Client::connect(&target).await.unwrap()
    };
    let client = connect(&koi).await;
    refuses(&client).await;

    submit(&client, "before").await;
    let before = tick(&client).await;
    let listed = held(&before, "g6e.12xlarge");
    let dear = options(&client, "before").await;
    // L40S machines become a hundred times cheaper, all others stay.
    let request = feed(vec![row("g6e.12xlarge", listed / 100.0)]);
    let reply = update(&client, request.clone()).await.unwrap();
    assert_eq!((reply.n_added, reply.n_warnings), (1, 1));
    assert_eq!(reply.warnings[0].problem, "below_list");
    assert_eq!(
        update(&client, request.clone()).await.unwrap(),
        reply,
        "one key, one answer"
    );
    let mut other = request;
    other.prices[0].usd_per_hour = Some(1.0);
    assert_eq!(
        update(&client, other).await.unwrap_err().code(),
        Code::Aborted
    );
    submit(&client, "after").await;
    let after = tick(&client).await;
    assert!((held(&after, "g6e.12xlarge") - listed / 100.0).abs() < 1e-9);
    let least = |usd: &[f64]| usd.iter().copied().fold(f64::INFINITY, f64::min);
    let cheap = options(&client, "after").await;
    assert!(
        least(&cheap) < least(&dear) / 20.0,
        "explain shows options at the new price: {dear:?} {cheap:?}"
    );

    let more = (0..7).map(|i| row(&format!("own-{i}"), 2.0)).collect();
    assert_eq!(update(&client, feed(more)).await.unwrap().n_warnings, 7);
    answers_alike(&client).await;
    takes_out(&client, 8).await;
    let kept = fed(&client, 3).await;
    assert_eq!(kept.len(), 8, "pages add up");
    assert!(
        kept.iter()
            .all(|p| p.source == "a test" && !p.problems.is_empty())
    );
    let koi = tokio::task::spawn_blocking(move || {
        assert_eq!(koi.run(["down"]).code, Some(0));
        let up = koi.up_with(&["--no-jobs".into()]);
        assert_eq!(up.code, Some(0), "{}{}", up.out, up.err);
        koi
    });
    let koi = koi.await.unwrap();
    let client = connect(&koi).await;
    assert_eq!(fed(&client, 100).await, kept);
    assert!((held(&tick(&client).await, "g6e.12xlarge") - listed / 100.0).abs() < 1e-9);
    tokio::task::spawn_blocking(move || drop(koi))
        .await
        .unwrap();
}
