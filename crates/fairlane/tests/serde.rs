//! Numbers, configurations and counts survive serialization, and out-of-range values are rejected.

use fairlane::tree::{ClassId, ClassStats};
use fairlane::{Count, FlowConfig, FlowId, FlowStats, Length, Limits, Nanos, Rate, Weight};
use serde_json::{from_str, json, to_value};

#[test]
fn numbers_are_numbers() {
    assert_eq!(to_value(Length::MAX).unwrap(), json!(65_535));
    assert_eq!(to_value(Weight::ONE).unwrap(), json!(1));
    assert_eq!(to_value(Rate::MIN).unwrap(), json!(1_000));
    assert_eq!(to_value(Nanos::from_micros(3)).unwrap(), json!(3_000));
    assert_eq!(to_value(FlowId::new(7)).unwrap(), json!(7));
    assert_eq!(to_value(ClassId::ROOT).unwrap(), json!(0));

    assert_eq!(from_str::<Length>("1500").unwrap().get(), 1500);
    assert_eq!(from_str::<Weight>("1000000").unwrap().get(), 1_000_000);
    assert_eq!(from_str::<Rate>("8000000").unwrap().bps(), 8_000_000);
    assert_eq!(from_str::<Nanos>("5").unwrap(), Nanos(5));
    assert_eq!(from_str::<FlowId>("3").unwrap(), FlowId::new(3));
    assert_eq!(from_str::<ClassId>("2").unwrap(), ClassId::new(2));
}

#[test]
fn what_is_out_of_range_is_refused_in_the_same_words() {
    for bytes in [0u32, 65_536] {
        let error = from_str::<Length>(&bytes.to_string()).unwrap_err();
        let expected = Length::try_from(bytes).unwrap_err();
        assert!(error.to_string().starts_with(&expected.to_string()));
    }
    for weight in [0, 1_000_001] {
        let error = from_str::<Weight>(&weight.to_string()).unwrap_err();
        let expected = Weight::try_from(weight).unwrap_err();
        assert!(error.to_string().starts_with(&expected.to_string()));
    }
    let error = from_str::<Rate>("999").unwrap_err().to_string();
    let expected = "a rate of 999 bit/s: rates are 1000 to 1000000000000 bit/s";
    assert!(error.starts_with(expected), "{error}");
    assert!(from_str::<Length>("-1").is_err() && from_str::<Weight>("\"4\"").is_err());
}

#[test]
fn a_flow_is_configured_by_what_is_written() {
    let short = r#"{"weight": 3, "max_length": 1500}"#;
    let config = FlowConfig::new(Weight::new(3).unwrap(), Length::new(1500).unwrap());
    assert_eq!(from_str::<FlowConfig>(short).unwrap(), config);
    let limits = Some(Limits {
        packets: 100,
        bytes: 64_000,
    });
    let config = FlowConfig { limits, ..config };
    let written = to_value(config).unwrap();
    assert_eq!(
        serde_json::from_value::<FlowConfig>(written).unwrap(),
        config
    );
    for wrong in [
        r#"{"weight": 0, "max_length": 1500}"#,
        r#"{"weight": 3}"#,
        r#"{"weight": 3, "max_length": 1500, "limit": 4}"#,
    ] {
        assert!(from_str::<FlowConfig>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn counts_are_read_as_they_were_written_and_missing_ones_are_zero() {
    let one = Count {
        packets: 1,
        bytes: 60,
    };
    let stats = FlowStats {
        accepted: one,
        queued: one,
        ..FlowStats::default()
    };
    let written = to_value(stats).unwrap();
    assert_eq!(written["queued"], json!({ "packets": 1, "bytes": 60 }));
    assert_eq!(serde_json::from_value::<FlowStats>(written).unwrap(), stats);
    let class = from_str::<ClassStats>(r#"{"sent": {"packets": 2}, "marked": 1}"#).unwrap();
    assert_eq!((class.sent.packets, class.marked), (2, 1));
    assert_eq!(class.accepted, Count::default());
}
