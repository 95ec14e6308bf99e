//! How long a large history takes: writes one campaign to so many recipients into a file, and judges it.
//!
//! `cargo run --release -p reveille-check --example large -- 1000000 FILE`

use std::fs::File;
use std::io::{BufReader, BufWriter, Error};
use std::time::Instant;

use reveille_check::Book;
use reveille_check::history::{
    Answered, Audience, Claim, Clock, Coverage, Due, Ended, Event, FORMAT, Fate, Fence, Header, InDoubt, Life, Mail,
    Outcome, Part, Policies, Run, RunCause, Standing, Step, Writer,
};

/// Recipients of a claim.
const SLICE: u64 = 256;
const RUN: &str = "r100.0";

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let recipients = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let path = arguments.next().unwrap_or_else(|| "large.jsonl".to_owned());
    write(recipients, &path)?;
    let begun = Instant::now();
    let book = Book::read(BufReader::with_capacity(1 << 20, File::open(&path)?)).map_err(Error::other)?;
    let read = begun.elapsed().as_secs_f64();
    let judgement = book.judge();
    let judged = begun.elapsed().as_secs_f64() - read;
    println!("{}", judgement.table());
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("{recipients} recipients: read in {read:.1} s, judged in {judged:.1} s; {peak}");
    Ok(())
}

fn address(number: u64) -> String {
    format!("r{number:08}.s1@audience.invalid")
}

fn write(recipients: u64, path: &str) -> Result<(), Error> {
    let mut writer = Writer::begin(BufWriter::new(File::create(path)?), &header())?;
    let (tenant, schedule, audience) = ("default".to_owned(), "campaign".to_owned(), "all".to_owned());
    let all =
        Audience { name: audience.clone(), recipients: (0..recipients).map(address).collect(), codes: Vec::new() };
    writer.event(&Event::Audience(all))?;
    writer.event(&Event::Due(Due { tenant: tenant.clone(), schedule: schedule.clone(), due_unix_ms: 0, audience }))?;
    writer.event(&Event::Run(Run {
        run: RUN.to_owned(),
        tenant,
        schedule,
        due_unix_ms: 0,
        cause: RunCause::Due,
        opened_index: 100,
        opened_unix_ms: 0,
        audience: u32::try_from(recipients).unwrap_or(u32::MAX),
        unfinished: 0,
    }))?;
    for first in (0..recipients).step_by(SLICE as usize) {
        let fence = Fence { group: 1, epoch: 1, index: 101 + first, place: 0 };
        let slice = first..recipients.min(first + SLICE);
        writer.event(&Event::Claim(Claim {
            fence,
            node: "n1".to_owned(),
            incarnation: Some(1),
            run: RUN.to_owned(),
            recipients: slice.clone().map(address).collect(),
            committed_ns: None,
            proposed_ns: None,
        }))?;
        for number in slice {
            one(&mut writer, number, fence)?;
        }
    }
    writer.event(&Event::Drained { at_ns: recipients * 100_000 })?;
    let life = Life { node: "n1".to_owned(), incarnation: Some(1), started_ns: 0, ended_ns: None, end: None };
    writer.event(&Event::Life(life))?;
    use Part::{Accepts, Calls, Claims, Dots, Faults, Instants, Lives, Outages, Outcomes, Runs, Standings};
    let whole =
        vec![Accepts, Dots, Calls, Claims, Part::Due, Faults, Instants, Lives, Outages, Outcomes, Runs, Standings];
    writer.end(&Ended { at_ns: recipients * 100_000, whole })?;
    Ok(())
}

fn one(writer: &mut Writer<BufWriter<File>>, number: u64, fence: Fence) -> Result<(), Error> {
    let (run, recipient, at_ns) = (RUN.to_owned(), address(number), number * 100_000);
    writer.event(&Event::Mail(Mail {
        data_ns: at_ns,
        at_ns,
        run: Some(run.clone()),
        recipient: recipient.clone(),
        fence: Some(fence),
        node: "n1".to_owned(),
        connection: number % 100,
        answer: Answered::Accepted,
        message_id: Some(format!("<{number:040x}@example.net>")),
        body: Some(format!("{number:064x}")),
        content: None,
        repeated_headers: Vec::new(),
    }))?;
    let (step, detail) = (Step::Sent, String::new());
    let (index, fence) = (fence.index + 1, Some(fence));
    let (run_of, recipient_of, proposed_ns) = (run.clone(), recipient.clone(), None);
    let sent = Outcome { index, fence, run: run_of, recipient: recipient_of, step, proposed_ns, detail };
    writer.event(&Event::Outcome(sent))?;
    let number = u32::try_from(number).ok();
    writer.event(&Event::Standing(Standing { run, recipient, number, state: Fate::Sent, cause: String::new() }))
}

fn header() -> Header {
    Header {
        format: FORMAT,
        seed: 1,
        command: "large".to_owned(),
        commit: "none".to_owned(),
        clock: Clock::Virtual,
        began_unix_ms: 0,
        nodes: vec!["n1".to_owned()],
        in_doubt: InDoubt::Hold,
        lease_ms: 4_000,
        margin_ms: 1_000,
        sessions: 100,
        claim_cap: 4_096,
        clock_error_ms: 0,
        late_ms: 1_000,
        drain_within_ms: 3_600_000,
        led_within_ms: None,
        start_bound_ms: None,
        policies: Policies::default(),
        asks: vec![1, 2, 3, 4, 5, 6, 8, 9, 10, 13],
        coverage: Coverage::default(),
    }
}
