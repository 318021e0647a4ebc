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

#[test]
fn what_the_device_has_no_kernels_for_is_unsupported() {
    use crate::model::KvDtype;
    let with = |gpu: &'static str, weights: WeightDtype, kv: KvDtype| {
        let mut case = Case::new("Llama-3.1-8B", gpu, 1);
        case.shape.weight_dtype = weights;
        case.shape.kv_dtype = kv;
        case.answer()
    };
    for gpu in ["T4", "V100"] {
        for (weights, kv, word) in [
            (WeightDtype::Fp8, KvDtype::Auto, "fp8 weights"),
            (WeightDtype::Auto, KvDtype::Fp8, "fp8 cache"),
        ] {
            let Answer::Unsupported(why) = with(gpu, weights, kv) else {
                panic!("{gpu} {word}")
            };
            assert!(why.contains(word) && why.contains("8.0; "), "{why}");
        }
    }
    // Kernels that widen, and devices that compute in the format.
    for gpu in ["A100", "L4", "H100"] {
        let answer = with(gpu, WeightDtype::Fp8, KvDtype::Fp8);
        assert!(matches!(answer, Answer::Prediction(_)), "{gpu}: {answer:?}");
    }
    let mut four_bit = Case::new("Llama-3.1-8B", "V100", 1);
    four_bit.model.native_weight_dtype = WeightDtype::Mxfp4;
    assert!(four_bit.unsupported().contains("mxfp4 weights need"));
    four_bit.gpu = "A100";
    assert!(matches!(four_bit.answer(), Answer::Prediction(_)));
}

#[test]
fn slices_of_a_gpu_make_no_group() {
    let mut case = Case::new("Llama-3.1-8B", "H100-MIG-3g.40gb", 1);
    assert!(matches!(case.answer(), Answer::Prediction(_)));
    case.shape.tp = 2;
    assert!(case.unsupported().contains("slices"));
    case.shape.tp = 1;
    case.shape.pp = 2;
    assert!(case.unsupported().contains("slices"));
}
