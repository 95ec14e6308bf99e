//! `pool …`: requests and output; and the cluster status when the cap of a day is used up.

use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, unknown};

fn bulk() -> v1::Pool {
    v1::Pool {
        name: "bulk".into(),
        relays: vec!["a".into(), "b".into()],
        warm_up: vec![50, 500],
        first_day: "2026-11-21".into(),
        cap_today: Some(500),
        used_today: 500,
        waiting: 1_200,
        day_end_time: Some(prost_types::Timestamp { seconds: 1_795_392_000, nanos: 0 }),
        index: 9,
        reveille_headers: true,
        etag: "9".into(),
    }
}

fn shown() -> serde_json::Value {
    json!({
        "name": "bulk", "relays": ["a", "b"], "warmUp": [50, 500], "firstDay": "2026-11-21", "capToday": 500,
        "usedToday": 500, "waiting": "1200", "dayEndTime": "2026-11-23T00:00:00Z", "index": "9",
        "reveilleHeaders": true, "etag": "9",
    })
}

async fn fake() -> Fake {
    Fake::start(|method, _| match method {
        "SetPool" => {
            let reason = v1::WarningReason::PoolUnused.into();
            let unused = v1::Warning { reason, pool: "bulk".into(), ..Default::default() };
            one(v1::SetPoolResponse { pool: Some(bulk()), warnings: vec![unused] })
        }
        "GetPool" => one(v1::GetPoolResponse { pool: Some(bulk()), freshness: None }),
        "ListPools" => one(v1::ListPoolsResponse { pools: vec![bulk()], ..Default::default() }),
        "RemovePool" => one(v1::RemovePoolResponse { index: 10 }),
        "GetClusterStatus" => one(v1::GetClusterStatusResponse {
            cluster: "c".into(),
            clocks_agree: true,
            pools_used_up: vec![bulk()],
            ..Default::default()
        }),
        _ => Err(unknown(method)),
    })
    .await
}

#[tokio::test]
async fn set_names_the_caps_and_where_it_is_given_the_first_day() {
    let fake = fake().await;
    let ended = fake.reveille("pool set bulk --warm-up 50,500 -o json").await;
    assert_eq!(ended.json()["pool"], shown());
    assert!(ended.stderr.contains("warning: no relay is in pool bulk"), "{ended:?}");
    fake.reveille("pool set bulk --warm-up 7 --first-day 2026-11-21").await;
    let requested: Vec<v1::SetPoolRequest> = fake.requests("SetPool");
    assert_eq!(
        (requested[0].name.as_str(), requested[0].warm_up.as_slice(), requested[0].first_day.as_str()),
        ("bulk", &[50, 500][..], "")
    );
    assert_eq!((requested[1].warm_up.as_slice(), requested[1].first_day.as_str()), (&[7][..], "2026-11-21"));
    fake.reveille("pool set bulk --reveille-headers false").await;
    let requested: Vec<v1::SetPoolRequest> = fake.requests("SetPool");
    assert_eq!((requested[2].warm_up.as_slice(), requested[2].reveille_headers), (&[][..], Some(false)));
    assert_eq!(requested[1].reveille_headers, None, "what is not given stays");
    for wrong in ["", " --reveille-headers", " --reveille-headers x", " --warm-up 0", " --warm-up 5,x", " --warm-up -1"]
    {
        let ended = fake.reveille(&format!("pool set bulk{wrong}")).await;
        assert_eq!(ended.code, Some(2), "{wrong}: {ended:?}");
    }
}

#[tokio::test]
async fn show_and_list_print_the_same_fields() {
    let fake = fake().await;
    assert_eq!(fake.reveille("pool show bulk -o json").await.json(), shown());
    assert_eq!(fake.reveille("pool list -o json").await.json(), json!([shown()]));
    let table = fake.reveille("pool list").await.stdout;
    assert!(table.starts_with("NAME"), "{table}");
    let card = fake.reveille("pool show bulk").await.stdout;
    assert!(card.contains("50, 500, from 2026-11-21"), "{card}");
    assert_eq!(fake.reveille("pool remove bulk --yes -o json").await.json(), json!({"index": "10"}));
}

#[tokio::test]
async fn status_says_which_day_is_used_up_and_how_much_waits() {
    let fake = fake().await;
    let words = "pool bulk: today's cap of 500 is used up; 1,200 emails wait until 00:00 UTC";
    let ended = fake.reveille("cluster status").await;
    assert!(ended.stdout.contains(words), "{ended:?}");
    let json = fake.reveille("cluster status -o json").await.json();
    assert_eq!(json["poolsUsedUp"], json!([shown()]));
    let ended = fake.reveille("doctor").await;
    assert!(ended.stdout.contains(words), "{ended:?}");
}
