//! Questions whose answer is not a prediction.

use super::*;

#[test]
fn what_does_not_fit_says_by_how_much() {
    let Answer::DoesNotFit(memory) = Case::new("Llama-3.1-70B", "H100", 1).answer() else {
        panic!("141 GB of weights fit on 80 GB")
    };
    assert!(memory.kv_pool_bytes < -60e9, "{memory:?}");
    // The whole context of 131,072 tokens takes 17 GB of cache, more than a 24 GB device has left.
    let mut long = Case::new("Llama-3.1-8B", "A10G", 1);
    long.shape.max_model_len = None;
    assert!(matches!(long.answer(), Answer::DoesNotFit(_)));
}

#[test]
fn what_the_engine_cannot_do_is_unsupported_with_the_reason() {
    assert!(
        Case::new("Llama-3.1-8B", "H100", 3)
            .unsupported()
            .contains("tp=3")
    );
    let mut case = Case::new("Llama-3.1-8B", "H100", 1);
    case.shape.max_model_len = Some(200_000);
    assert!(case.unsupported().contains("131072"));
    let mut case = Case::new("Llama-3.1-8B", "H100", 1);
    case.workload.isl.p99 = 9_000.0;
    assert!(case.unsupported().contains("9001"));
    let mut case = Case::new("Llama-3.1-8B", "H100", 1);
    case.rate = f64::NAN;
    assert!(case.unsupported().contains("NaN"));
    case.rate = 1.0;
    case.replicas = 0;
    assert!(case.unsupported().contains("replica"));
    let mut case = Case::new("Llama-3.1-8B", "H100", 1);
    case.shape.weight_dtype = WeightDtype::Int4;
    assert!(case.unsupported().contains("int4"));
    let mut case = Case::new("Llama-3.1-8B", "H100", 1);
    case.shape.chunked_prefill = false;
    case.shape.max_num_batched_tokens = 4_096;
    assert!(case.unsupported().contains("chunked"));
}
