//! Commands of a script that become log entries.

use std::collections::BTreeMap;

use goldenscript::Context;
use reveille_ledger::access::Access;
use reveille_ledger::calendar::{self, Pattern, When};
use reveille_ledger::canary::Canary;
use reveille_ledger::command::*;
use reveille_ledger::content::{
    Attachment, AudienceChoice, Content, ContentChoice, NamedAudience, NamedTemplate, Seal,
};
use reveille_ledger::ids::*;
use reveille_ledger::instant_range::{InstantRange, distance_ms};
use reveille_ledger::labels::Labels;
use reveille_ledger::planning::archive::{ArchiveCursor, next_batch};
use reveille_ledger::planning::backfill::range;
use reveille_ledger::planning::catch_up;
use reveille_ledger::planning::edit::{TimingEdit, plan_timing_change};
use reveille_ledger::planning::timing::{self, Calendar, Jitter, Zone};
use reveille_ledger::policy::{CatchUp, DAY_MS, InDoubt, Overlap, Policies};
use reveille_ledger::pool::{Day, PoolSet};
use reveille_ledger::restore::Restore;
use reveille_ledger::tenant::TenantSet;
use reveille_ledger::token::{Rights, TenantScope, TokenGrant};
use reveille_ledger::{RunFile, ScheduleState, ScheduleTiming};

use super::arguments::{Parsed, Words, milliseconds, slots};
use super::test_ledger::{TestLedger, audience, audience_from, content};

/// Version of the zone rules with which scripts fire.
const TZDB: &str = "test";

impl TestLedger {
    /// Executes a command that changes the ledger; `None` if it is not one of these.
    pub fn ask(&mut self, name: &str, words: &mut Words, context: &Context) -> Parsed<Option<String>> {
        let command = match name {
            "cluster" => return self.cluster(words).map(Some),
            "epoch" => return self.epoch(words).map(Some),
            "tick" => Command::Tick,
            "wait" => return self.wait(words).map(Some),
            "up" => self.up(words)?,
            "drain" => Command::NodeDrain(NodeId(words.number("node", 1)?)),
            "undrain" => Command::NodeUndrain(NodeId(words.number("node", 1)?)),
            "share" => Command::NodeShare(NodeShare {
                node: NodeId(words.number("node", 1)?),
                opens: words.key("opens") == Some("yes"),
            }),
            "restore" => {
                let hash = Hash::of(b"the first token");
                let (rights, tenants) = (Rights(u32::MAX), TenantScope::All);
                let grant = TokenGrant { name: "admin".into(), hash, rights, tenants, expires_at: None };
                Command::Restore(Box::new(Restore { former_cluster: 7, token: TokenId(9), grant }))
            }
            "accept_restore" => Command::RestoreAccept,
            "remove_node" => Command::NodeRemove(NodeId(words.number("node", 1)?)),
            "authority" => Command::Authority(authority_step(words)?),
            "relay" => self.relay(words)?,
            "remove_relay" => Command::RelayRemove(removal("name", words)?),
            "create" => return self.create(words).map(Some),
            "edit" => return self.edit(words).map(Some),
            "backfill" => return self.backfill(words).map(Some),
            "archive" => self.archive(words)?,
            "accept_loss" => self.accept_loss(words)?,
            "pause" => Command::SchedulePause(SchedulePause {
                schedule: self.schedule(words.need("schedule")?)?,
                reason: words.key("reason").unwrap_or("rest").into(),
            }),
            "resume" => self.resume(words)?,
            "delete" => Command::ScheduleDelete(ScheduleDelete {
                schedule: self.schedule(words.need("schedule")?)?,
                expected: words.key("plan").map(str::parse).transpose()?,
            }),
            "trigger" => Command::Trigger(Trigger {
                schedule: self.schedule(words.need("schedule")?)?,
                request: words.need("request")?.into(),
                audience: match words.key("size") {
                    Some(size) => Some(audience_from(words.number("from", 0)?, size.parse()?)),
                    None => None,
                },
                rule: rule(words),
            }),
            "send_test" => self.send_test(words)?,
            "send" => self.send(words)?,
            "fire" => self.fire(words)?,
            "fire_due" => return self.fire_due(words).map(Some),
            "claim" => return self.claim(words, context).map(Some),
            "settle" => self.settle(words)?,
            "revoke" => {
                Command::Revoke(words.rest().into_iter().map(|name| self.fence(name)).collect::<Parsed<Vec<_>>>()?)
            }
            "expire" => Command::Expire(words.rest().into_iter().map(|run| self.run(run)).collect::<Parsed<Vec<_>>>()?),
            "pause_run" => Command::RunPause(RunPause {
                run: self.run(words.need("run")?)?,
                reason: words.key("reason").unwrap_or("look").into(),
            }),
            "resume_run" => Command::RunResume(RunResume {
                run: self.run(words.need("run")?)?,
                without_canary: words.key("without_canary") == Some("yes"),
                expected: words.key("expected").map(str::parse).transpose()?,
            }),
            "block" => Command::RunBlock(vec![RunBlock {
                run: self.run(words.need("run")?)?,
                file: match words.key("part") {
                    Some("attachment") => Some(RunFile::Attachment),
                    part => part.map(str::parse).transpose()?.map(RunFile::Part),
                },
            }]),
            "cancel_run" => Command::RunCancel(self.run(words.need("run")?)?),
            "decide" => self.decide(words)?,
            "requeue" => {
                let pool = words.key("pool").map(str::to_owned);
                Command::Requeue(Requeue { letters: self.letters(words)?, pool })
            }
            "discard" => Command::Discard(self.letters(words)?),
            "opt_out" => Command::OptOut(OptOut {
                tenant: words.key("tenant").unwrap_or("default").into(),
                keys: words.rest().into_iter().map(str::to_owned).collect(),
            }),
            "take_back" => Command::OptOutTakeBack(OptOutTakeBack {
                tenant: words.key("tenant").unwrap_or("default").into(),
                last: words.number("last", 0_u64)?,
                reason: words.key("reason").unwrap_or_default().into(),
                key: words.need("address")?.into(),
            }),
            "erase" => self.erase(words)?,
            "quarantine" => self.quarantine(words)?,
            "seal" => Self::seal(words)?,
            "forget" => Command::AudienceDelete(AudienceDelete {
                request: words.key("request").map(str::to_owned),
                tenant: words.key("tenant").unwrap_or("default").into(),
                name: words.need("name")?.into(),
                expected: words.key("expected").map(str::to_owned),
            }),
            "put_template" => Command::TemplatePut(Box::new(TemplatePut {
                tenant: words.key("tenant").unwrap_or("default").into(),
                content: attached(content(words.key("subject").unwrap_or("hello")), words)?,
                expected: words.key("expected").map(str::parse).transpose()?,
                name: words.need("name")?.into(),
            })),
            "delete_template" => Command::TemplateDelete(TemplateDelete {
                tenant: words.key("tenant").unwrap_or("default").into(),
                expected: words.key("expected").map(str::parse).transpose()?,
                name: words.need("name")?.into(),
            }),
            "campaign" => self.campaign(words)?,
            "launch" => self.launch(words)?,
            "arm" => self.arm(words)?,
            "cancel_campaign" => Command::CampaignCancel(campaign_end(words)?),
            "forget_campaign" => Command::CampaignDelete(campaign_end(words)?),
            "tenant" => Self::tenant(words)?,
            "remove_tenant" => Command::TenantRemove(removal("name", words)?),
            "set_pool" => self.set_pool(words)?,
            "reset_pool" => Command::PoolReset(removal("pool", words)?),
            "raise" => {
                let voters = 1..=words.number("voters", 3)?;
                Command::RaiseLevel(RaiseLevel {
                    level: words.number("level", 2)?,
                    voters: voters.map(NodeId).collect(),
                })
            }
            "test_clock" => Command::TestClock,
            "advance" => Command::Advance(Advance {
                to: self.first.plus_ms(milliseconds(words.need("to when")?)?),
                jump: words.key("jump") == Some("yes"),
            }),
            _ => return Ok(None),
        };
        self.commit(command, words).map(Some)
    }

    /// `tenant acme rate_milli=5000 concurrency=3 share=2 pools=bulk,news`: values that are not named do not change.
    fn tenant(words: &mut Words) -> Parsed<Command> {
        Ok(Command::TenantSet(TenantSet {
            request: words.key("request").map(str::to_owned),
            name: words.need("name")?.into(),
            rate_milli: words.key("rate_milli").map(str::parse).transpose()?,
            concurrency: words.key("concurrency").map(str::parse).transpose()?,
            share: words.key("share").map(str::parse).transpose()?,
            pools: words.key("pools").map(|pools| pools.split_terminator(',').map(str::to_owned).collect()),
            expected: etag(words),
        }))
    }

    /// `set_pool default caps=5,10 first=-1 headers=false`: `first` counts from today.
    fn set_pool(&self, words: &mut Words) -> Parsed<Command> {
        let caps = words.key("caps").unwrap_or_default().split(',').filter(|cap| !cap.is_empty());
        let first: Option<i64> = words.key("first").map(str::parse).transpose()?;
        Ok(Command::PoolSet(PoolSet {
            request: words.key("request").map(str::to_owned),
            pool: words.need("pool")?.into(),
            caps: caps.map(str::parse).collect::<Result<_, _>>()?,
            first: first.map(|days| Day(Day::of(self.ledger.head().now).0 + days)),
            reveille_headers: words.key("headers").map(str::parse).transpose()?,
            expected: etag(words),
        }))
    }

    /// `seal all rows=70000 of=one`: the parts are hashes of the word after `of`; `parts=` gives another number of
    /// them.
    fn seal(words: &mut Words) -> Parsed<Command> {
        let name = words.need("name")?.to_owned();
        let rows = words.number("rows", 1_u32)?;
        let parts = words.number("parts", rows.div_ceil(65_536))?;
        let of = words.key("of").unwrap_or("one").to_owned();
        let seal = Seal {
            name,
            columns: vec!["name".into()],
            rows,
            parts: (0..parts).map(|part| Hash::of(format!("{of} {part}").as_bytes())).collect(),
        };
        Ok(Command::AudienceSeal(AudienceSeal {
            request: words.key("request").map(str::to_owned),
            tenant: words.key("tenant").unwrap_or("default").into(),
            seal,
        }))
    }

    /// `erase u0@example.org schedule=daily run=r7.0 part="one 0"`: erases the address from the list of the first one
    /// that is named, for all that are named. `content=hello`: this content, which only archived runs have.
    fn erase(&self, words: &mut Words) -> Parsed<Command> {
        let schedules =
            words.all("schedule").into_iter().map(|name| self.schedule(name)).collect::<Parsed<Vec<_>>>()?;
        let runs = words.all("run").into_iter().map(|name| self.run(name)).collect::<Parsed<Vec<_>>>()?;
        let of_schedule = schedules.first().and_then(|id| Some(self.ledger.schedules().get(id)?.audience));
        let of_run = runs.first().and_then(|id| Some(self.ledger.run(*id)?.audience));
        let named = words.key("audience").and_then(|name| {
            let key = ("default".to_owned(), name.to_owned());
            Some(self.ledger.audiences().get(&key)?.seal)
        });
        let part = words.key("part").map(|part| ErasedPart {
            former: Hash::of(part.as_bytes()),
            erased: Hash::of(format!("{part} without").as_bytes()),
        });
        let unused = words.key("content").map(|subject| content(subject).blob().hash);
        let audience = of_schedule.or(of_run).or(named).or(unused);
        let number = words.number("number", 0_u32)?;
        let change = |audience| ErasedAudience { audience, number, part, schedules, runs };
        Ok(Command::RecipientErase(Box::new(RecipientErase {
            tenant: words.key("tenant").unwrap_or("default").into(),
            key: words.need("address")?.into(),
            audiences: audience.map(change).into_iter().collect(),
            blocks: Vec::new(),
        })))
    }

    /// `subject=hello`, `template=welcome`, or `template=welcome@2`. With `read=hello` the proposer has read this
    /// content in the version.
    fn content_choice(&self, words: &mut Words) -> Parsed<Option<ContentChoice>> {
        let Some(template) = words.key("template") else {
            let subject = words.key("subject").map(content);
            return Ok(subject.map(|content| attached(content, words)).transpose()?.map(ContentChoice::Given));
        };
        let (name, version) =
            template.split_once('@').map_or((template, None), |(name, version)| (name, Some(version)));
        let version: Option<u32> = version.map(str::parse).transpose()?;
        let found = self.ledger.template_version("default", name, version).ok();
        let read = words.key("read").map(|subject| content(subject).blob().hash);
        Ok(Some(ContentChoice::Template(NamedTemplate {
            name: name.into(),
            version: found.map_or(version.unwrap_or(1), |found| found.version),
            content: read.or(found.map(|found| found.content)).unwrap_or_default(),
            newest: version.is_none(),
        })))
    }

    /// `campaign spring audience=all due=1h subject=hello`
    fn campaign(&self, words: &mut Words) -> Parsed<Command> {
        let CampaignName { tenant, name } = campaign_name(words)?;
        Ok(Command::CampaignCreate(Box::new(CampaignCreate {
            request: words.key("request").map(str::to_owned),
            tenant,
            name,
            due: self.first.plus_ms(words.ms("due")?.unwrap_or(3_600_000)),
            zone: "UTC".into(),
            audience: words.key("audience").unwrap_or("all").into(),
            content: self.content_choice(words)?.unwrap_or_else(|| content("hello").into()),
            policies: self.policies(words)?,
            finish_by_given: words.key("given") == Some("yes"),
            pool: "default".into(),
            priority: 0,
            labels: Labels::default(),
        })))
    }

    /// `launch spring due=1h again=yes`
    fn launch(&self, words: &mut Words) -> Parsed<Command> {
        let campaign = campaign_name(words)?;
        let known = self.ledger.campaigns().get(&campaign.key()).map_or(self.first, |campaign| campaign.due);
        let checked = self.seal_of(&campaign).filter(|_| words.key("checked") != Some("no"));
        Ok(Command::CampaignLaunch(CampaignLaunch {
            campaign,
            due: words.ms("due")?.map_or(known, |ms| self.first.plus_ms(ms)),
            checked,
            again: words.key("again") == Some("yes"),
            tzdb: TZDB.into(),
            expected: etag(words),
        }))
    }

    /// `arm late wrong="unknown variable"`: checked with the campaign's audience; `checked=day`: with that audience;
    /// `checked=no`: with none.
    fn arm(&self, words: &mut Words) -> Parsed<Command> {
        let campaign = campaign_name(words)?;
        let checked = match words.key("checked") {
            None => self.seal_of(&campaign),
            Some(other) => {
                let place = (campaign.tenant.clone(), other.to_owned());
                self.ledger.audiences().get(&place).map(|sealed| sealed.seal)
            }
        };
        Ok(Command::CampaignArm(CampaignArm { campaign, checked, wrong: words.key("wrong").map(str::to_owned) }))
    }

    /// Returns the hash of the present seal of a campaign's audience.
    fn seal_of(&self, named: &CampaignName) -> Option<Hash> {
        let audience = self.ledger.campaigns().get(&named.key()).map(|campaign| campaign.audience.clone())?;
        self.ledger.audiences().get(&(named.tenant.clone(), audience)).map(|sealed| sealed.seal)
    }

    /// Returns a sealed audience as a create names it. An unknown one is named as by a client that read it earlier.
    fn sealed(&self, name: &str) -> Parsed<AudienceChoice> {
        let known = self.ledger.audiences().get(&("default".to_owned(), name.to_owned()));
        let (seal, rows) = known.map_or((Hash([0; 32]), 1), |known| (known.seal, known.rows));
        Ok(AudienceChoice::Sealed(NamedAudience { name: name.to_owned(), seal, rows }))
    }

    /// `cluster nodes=3`: an epoch led by node 1, and the first incarnation of each node.
    fn cluster(&mut self, words: &mut Words) -> Parsed<String> {
        if let Some(instant) = words.key("at") {
            self.first = Time::from(instant.parse::<jiff::Timestamp>()?);
        }
        let nodes = words.number("nodes", 2_u64)?;
        let readings = (1..=nodes.max(2)).map(|node| VoterClock { node: NodeId(node), wall: self.first }).collect();
        let start = EpochStart::new(owner(1, 1), 3, readings);
        self.commit_entry(Entry {
            epoch: Epoch(0),
            now: Time(0),
            actor: Actor::System,
            command: Command::EpochStart(start),
        })?;
        for node in 1..=nodes {
            let up = NodeUp { owner: owner(node, 1), name: format!("n{node}"), level: 1, process_nonce: node };
            self.commit(Command::NodeUp(up), &mut Words::none())?;
        }
        Ok(format!("{nodes} nodes are up, epoch 1"))
    }

    /// `epoch node=2 clocks="0s,1s"`: a new leader, and the clocks that answered, by node number from 1. For a single
    /// voter also `machine=7/90s`, the boot and the uptime of its machine, and `accept=yes`.
    fn epoch(&mut self, words: &mut Words) -> Parsed<String> {
        let leader = owner(words.number("node", 1)?, words.number("incarnation", 1)?);
        let voters = words.number("voters", 3)?;
        let now = self.ledger.head().now;
        let readings = match words.key("clocks") {
            None => vec![VoterClock { node: NodeId(1), wall: now }, VoterClock { node: NodeId(2), wall: now }],
            Some(list) => {
                list.split(',').enumerate().map(|(place, text)| self.reading(place, text)).collect::<Parsed<_>>()?
            }
        };
        let machine = words.key("machine").map(Self::machine).transpose()?;
        let accept_clock = words.key("accept").is_some();
        let start = EpochStart { machine, accept_clock, ..EpochStart::new(leader, voters, readings) };
        let command = Command::EpochStart(start);
        self.commit_entry(Entry { epoch: Epoch(0), now: Time(0), actor: Actor::System, command })
    }

    /// `5s`, or `1/5s` with the node's number.
    fn reading(&self, place: usize, text: &str) -> Parsed<VoterClock> {
        let (node, wall) = match text.split_once('/') {
            Some((node, wall)) => (node.parse()?, wall),
            None => (place as u64 + 1, text),
        };
        Ok(VoterClock { node: NodeId(node), wall: self.first.plus_ms(milliseconds(wall)?) })
    }

    fn machine(text: &str) -> Parsed<MachineClock> {
        let (boot, ran) = text.split_once('/').ok_or("machine=BOOT/UPTIME")?;
        Ok(MachineClock { boot: boot.parse()?, boot_ms: u64::try_from(milliseconds(ran)?)? })
    }

    /// `wait 90s`: ticks, none of them longer than the ledger allows.
    fn wait(&mut self, words: &mut Words) -> Parsed<String> {
        let mut left = milliseconds(words.need("how long")?)?;
        while left > 0 {
            let step = left.min(self.ledger.limits().leap_ms_max);
            left -= step;
            let head = self.ledger.head();
            let epoch = head.current_epoch().unwrap_or_default();
            let now = head.now.plus_ms(step - head.offset_ms());
            self.commit_entry(Entry { epoch, now, actor: Actor::System, command: Command::Tick })?;
        }
        Ok(format!("it is {}", self.time(self.ledger.head().now)))
    }

    fn up(&mut self, words: &mut Words) -> Parsed<Command> {
        let node = words.number("node", 1)?;
        let incarnation = words.number("incarnation", 1)?;
        let process_nonce = words.number("life", node)?;
        let level = words.number("level", 1)?;
        let name = format!("n{node}");
        Ok(Command::NodeUp(NodeUp { owner: owner(node, incarnation), name, level, process_nonce }))
    }

    /// `send_test one within=1m`: a test email, named by its request.
    fn send_test(&mut self, words: &mut Words) -> Parsed<Command> {
        let message = SendMessage { is_test: true, priority: u8::MAX, ..self.message(words, 60_000)? };
        let messages = vec![SendMessage { key: words.need("request")?.into(), ..message }];
        Ok(Command::SendMessages(SendMessages { tenant: "default".into(), messages }))
    }

    /// `send order-1 order-2 send=1h within=1d`: messages in one entry, equal but for their keys. `differs=yes`: each
    /// has another subject.
    fn send(&mut self, words: &mut Words) -> Parsed<Command> {
        let tenant = words.key("tenant").unwrap_or("default").into();
        let differs = words.key("differs").is_some();
        let message = self.message(words, DAY_MS)?;
        let message_of = |(place, key): (usize, &str)| {
            let content = if differs { content(&format!("hello {place}")) } else { message.content.clone() };
            SendMessage { key: key.to_owned(), content, ..message.clone() }
        };
        let messages = words.rest().into_iter().enumerate().map(message_of).collect();
        Ok(Command::SendMessages(SendMessages { tenant, messages }))
    }

    fn message(&mut self, words: &mut Words, within_ms: i64) -> Parsed<SendMessage> {
        Ok(SendMessage {
            key: String::new(),
            rule: rule(words),
            is_test: false,
            content: attached(content(words.key("subject").unwrap_or("hello")), words)?,
            audience: audience_from(words.number("from", 0)?, words.number("size", 1)?),
            send_at: words.ms("send")?.map(|ms| self.first.plus_ms(ms)),
            pool: words.key("pool").unwrap_or("default").into(),
            priority: words.number("priority", 0)?,
            policies: Policies { finish_by_ms: words.ms("within")?.unwrap_or(within_ms), ..Policies::default() },
        })
    }

    fn relay(&mut self, words: &mut Words) -> Parsed<Command> {
        let relay = Relay {
            name: words.need("name")?.into(),
            pool: words.key("pool").unwrap_or("default").into(),
            host: words.key("host").unwrap_or("127.0.0.1").into(),
            port: words.number("port", 25)?,
            access: Access::default(),
            rate_milli: words.number("rate_milli", 0)?,
            max_sessions: words.number("sessions", 4)?,
            late_rate_milli: words.number("late_rate_milli", 0)?,
            weight: words.number("weight", 1)?,
        };
        let replace = words.key("replace") == Some("yes");
        let request = words.key("request").map(str::to_owned);
        Ok(Command::RelayPut(RelayPut { relay, replace, request, expected: etag(words) }))
    }

    /// `create daily size=3 due=10s every=1m`, or `cron="0 9 * * *" zone=Europe/Berlin`.
    fn create(&mut self, words: &mut Words) -> Parsed<String> {
        let names: Vec<String> = match words.key("numbered") {
            Some(count) => numbered(count, words)?,
            None => vec![words.need("name")?.to_owned()],
        };
        let now = self.ledger.head().now;
        let zone = words.key("zone").unwrap_or("UTC").to_owned();
        let policies = self.policies(words)?;
        let start = words.ms("start")?.map(|ms| self.first.plus_ms(ms));
        let end = words.ms("end")?.map(|ms| self.first.plus_ms(ms));
        let due = words.ms("due")?.map(|ms| self.first.plus_ms(ms));
        let period = words.ms("every")?.unwrap_or(60_000);
        let when = match words.key("cron") {
            Some(expression) => When::Cron { expression: expression.into() },
            None => {
                let anchor = due.unwrap_or(now.plus_ms(10_000));
                When::Every { period_ms: period.unsigned_abs(), anchor_ms: anchor.0 }
            }
        };
        let pattern = Pattern::compile(&when)?;
        let zone_rules = rules(&zone)?;
        let size = words.number("size", 1)?;
        let together = words.key("together").is_some();
        let max_runs = words.key("max_runs").map(str::parse).transpose()?;
        let create = ScheduleCreate {
            request: words.key("request").map(str::to_owned),
            tenant: words.key("tenant").unwrap_or("default").into(),
            name: String::new(),
            timing: ScheduleTiming { when, zone, start, end, max_runs },
            policies,
            pool: words.key("pool").unwrap_or("default").into(),
            priority: words.number("priority", 0)?,
            paused: words.key("paused").map(str::to_owned),
            content: self.content_choice(words)?.unwrap_or_else(|| content("hello").into()),
            audience: match words.key("audience") {
                Some(name) => self.sealed(name)?,
                None => audience(size).into(),
            },
            after: now,
            next: None,
            tzdb: words.key("tzdb").unwrap_or(TZDB).into(),
            labels: words.key("labels").map(labels).transpose()?.unwrap_or_default(),
        };
        let mut output = String::new();
        let count = names.len();
        let calendar = Calendar { pattern: &pattern, zone: &zone_rules };
        let creates: Vec<ScheduleCreate> = names
            .iter()
            .map(|name| {
                let jitter = Jitter { tenant: &create.tenant, name, window_ms: create.policies.jitter_ms };
                let next = timing::first_instant_after(calendar, &create.policies.dst, now, (start, end), jitter);
                ScheduleCreate { name: name.clone(), next, ..create.clone() }
            })
            .collect();
        if together {
            let output = self.commit(Command::SchedulesCreate(creates), &mut Words::none())?;
            for name in names {
                if let Some((id, _)) = self.ledger.schedule_named("default", &name) {
                    self.names.insert(name, id);
                }
            }
            return Ok(output);
        }
        for (place, (name, create)) in names.into_iter().zip(creates).enumerate() {
            let command = Command::ScheduleCreate(Box::new(create));
            if place + 1 < count {
                self.commit_unseen(command);
            } else {
                output = self.commit(command, &mut Words::none())?;
            }
            if let Some((id, _)) = self.ledger.schedule_named("default", &name) {
                self.names.insert(name, id);
            }
        }
        Ok(if count == 1 { output } else { format!("{count} schedules, the last one:\n{output}") })
    }

    /// `edit daily cron="0 10 * * *"`: values that are not named do not change. `due=` and `every=` make another
    /// period. The former timing is settled by a proposer's results, up to now or `through=`.
    fn edit(&mut self, words: &mut Words) -> Parsed<String> {
        let id = self.schedule(words.need("schedule")?)?;
        let schedule = self.ledger.schedules().get(&id).ok_or("no such schedule")?.clone();
        let when = match (words.key("cron"), words.ms("every")?) {
            (Some(expression), _) => Some(When::Cron { expression: expression.into() }),
            (None, Some(period)) => {
                let anchor = words.ms("due")?.map_or(self.first, |ms| self.first.plus_ms(ms));
                Some(When::Every { period_ms: period.unsigned_abs(), anchor_ms: anchor.0 })
            }
            (None, None) => None,
        };
        let zone = words.key("zone").map(str::to_owned);
        let max_runs = words.key("max_runs").map(str::parse).transpose()?;
        let through = words.ms("through")?.map_or(self.ledger.head().now, |ms| self.first.plus_ms(ms));
        let jitter_ms = words.ms("jitter")?;
        let timing = match when.is_some() || zone.is_some() || max_runs.is_some() || jitter_ms.is_some() {
            false => None,
            true => Some(self.retiming(id, when, zone, (max_runs.or(schedule.timing.max_runs), jitter_ms), through)?),
        };
        let retention_ms = words.ms("retention")?.unwrap_or(schedule.settings.policies.retention_ms);
        let (size, first) = (words.key("size").map(str::parse).transpose()?, words.number("first", 0)?);
        let edit = ScheduleEdit {
            request: words.key("request").map(str::to_owned),
            body_hash: Hash::of(words.key("body").unwrap_or("").as_bytes()),
            schedule: id,
            plan_version: words.number("plan", schedule.plan.version)?,
            timing,
            policies: match (words.key("catch_up"), words.key("overlap"), words.ms("min_gap")?) {
                (None, None, None) => {
                    jitter_ms.map(|jitter_ms| Policies { jitter_ms, ..(*schedule.settings.policies).clone() })
                }
                (Some(_), ..) => Some(Policies { catch_up: CatchUp::None, ..(*schedule.settings.policies).clone() }),
                (None, Some(word), _) => {
                    Some(Policies { overlap: overlap(word)?, ..(*schedule.settings.policies).clone() })
                }
                (None, None, Some(min_gap_ms)) => {
                    Some(Policies { min_gap_ms, retention_ms, ..(*schedule.settings.policies).clone() })
                }
            },
            pool: words.key("pool").map(str::to_owned),
            priority: words.key("priority").map(str::parse).transpose()?,
            content: self.content_choice(words)?,
            labels: words.key("labels").map(labels).transpose()?,
            audience: match (size, words.key("audience")) {
                (Some(size), _) => Some(audience_from(first, size).into()),
                (None, Some(name)) => Some(self.sealed(name)?),
                (None, None) => None,
            },
        };
        self.commit(Command::ScheduleEdit(Box::new(edit)), words)
    }

    /// `backfill daily from=1d to=3d max=2`: what a proposer finds there; or `opens=`, whatever it finds.
    fn backfill(&mut self, words: &mut Words) -> Parsed<String> {
        let schedule = self.schedule(words.need("schedule")?)?;
        let known = self.ledger.schedules().get(&schedule).ok_or("no such schedule")?;
        let now = self.ledger.head().now;
        let at = |ms: Option<i64>| ms.map_or(now, |ms| self.first.plus_ms(ms));
        let (from, to) = (at(words.ms("from")?), at(words.ms("to")?));
        let (pattern, zone) = (Pattern::compile(&known.timing.when)?, rules(&known.timing.zone)?);
        let calendar = Calendar { pattern: &pattern, zone: &zone };
        let has_opened = |name: &OccurrenceName| self.ledger.has_opened(&(schedule, name.clone()));
        let found = range(
            known,
            calendar,
            (from, to),
            words.number("max", self.ledger.limits().backfill_openings_max)?,
            now,
            has_opened,
        );
        let rest = found.rest.map_or("nothing".to_owned(), |rest| format!("what begins at {}", self.time(rest)));
        let text = format!("{} to open, {} known, {rest} is left\n", found.openings.len(), found.known);
        let opening = |next: NextInstant| Opening {
            occurrence: next.occurrence,
            due: next.due,
            cause: OpeningCause::Backfill,
            finish_by: now.plus_ms(known.settings.policies.finish_by_ms),
        };
        let (openings, known, rest) = match words.key("opens") {
            Some(text) => (self.instants(text)?.into_iter().map(opening).collect(), 0, None),
            None => (found.openings, found.known, found.rest),
        };
        let request = words.key("request").map(str::to_owned);
        let body_hash = Hash::of(words.key("body").unwrap_or("").as_bytes());
        let backfill = Backfill { request, body_hash, schedule, openings, known, rest };
        Ok(text + &self.commit(Command::Backfill(backfill), words)?)
    }

    /// `archive`: what the auditor finds a day after a run finished, or `after=TIME`. Or only these rows: `archive
    /// r5.0`, `archive summary=r5.0`.
    fn archive(&mut self, words: &mut Words) -> Parsed<Command> {
        let after_ms = words.ms("after")?.unwrap_or(DAY_MS);
        let summaries = words.all("summary").into_iter().map(|run| self.run(run)).collect::<Parsed<Vec<_>>>()?;
        let pages = words.rest().into_iter().map(|run| self.run(run).map(PageId)).collect::<Parsed<Vec<_>>>()?;
        if pages.is_empty() && summaries.is_empty() {
            let now = self.ledger.head().now;
            let (found, more) = next_batch(&self.ledger, &ArchiveCursor::default(), now, after_ms);
            return if more.is_none() { Ok(Command::Archive(found)) } else { Err("more than one batch".into()) };
        }
        Ok(Command::Archive(Archive { pages, after_ms, summaries, ..Archive::default() }))
    }

    /// `accept_loss r7.0 details summaries`: a block of each of these lists is lost, in the part that may have the run.
    fn accept_loss(&self, words: &mut Words) -> Parsed<Command> {
        let run = self.run(words.need("run")?)?;
        let has_run = |(first, last)| first <= run && run <= last;
        let mut parts = self.ledger.parts().iter().filter(|(_, part)| part.runs().is_some_and(has_run));
        let (key, part) = parts.next().ok_or("no part has the run")?;
        let blocks = words.rest().into_iter().filter_map(|list| match list {
            "details" => part.details.first(),
            _ => part.summaries.first(),
        });
        let blocks = blocks.map(|block| block.hash).collect();
        Ok(Command::ArchiveLossAccept(vec![LostBlocks { part: *key, blocks }]))
    }

    fn retiming(
        &self,
        id: ScheduleId,
        when: Option<When>,
        zone: Option<String>,
        (max_runs, jitter_ms): (Option<u32>, Option<i64>),
        through: Time,
    ) -> Parsed<TimingChange> {
        let schedule = self.ledger.schedules().get(&id).ok_or("no such schedule")?;
        let jitter_ms = jitter_ms.unwrap_or(schedule.settings.policies.jitter_ms);
        let timing = ScheduleTiming {
            when: when.unwrap_or_else(|| schedule.timing.when.clone()),
            zone: zone.unwrap_or_else(|| schedule.timing.zone.to_string()),
            max_runs,
            ..(*schedule.timing).clone()
        };
        let policies = &Policies { jitter_ms, ..(*schedule.settings.policies).clone() };
        let former = (Pattern::compile(&schedule.timing.when)?, rules(&schedule.timing.zone)?);
        let next = (Pattern::compile(&timing.when)?, rules(&timing.zone)?);
        let former = Calendar { pattern: &former.0, zone: &former.1 };
        let calendar = Calendar { pattern: &next.0, zone: &next.1 };
        let fires = schedule.state == ScheduleState::Active;
        let due = fires
            .then(|| catch_up::plan_last_fire_of_old_timing(&self.ledger, id, former.pattern, former.zone, through))
            .flatten();
        let has_opened = |name: &OccurrenceName| self.ledger.has_opened(&(id, name.clone()));
        let waits = self.ledger.waits_at(id, through);
        let edit = TimingEdit { schedule, due, former: Some(former), timing, policies, calendar, through, waits };
        Ok(plan_timing_change(edit, has_opened)?)
    }

    fn policies(&self, words: &mut Words) -> Parsed<Policies> {
        let usual = Policies::default();
        Ok(Policies {
            dst: calendar::DstPolicies {
                gap: words.key("dst_gap").map_or(Ok(usual.dst.gap), str::parse)?,
                overlap: words.key("dst_overlap").map_or(Ok(usual.dst.overlap), str::parse)?,
            },
            catch_up: match words.key("catch_up") {
                None | Some("one") => CatchUp::One,
                Some("all") => CatchUp::All,
                Some("none") => CatchUp::None,
                Some(other) => return Err(format!("catch_up={other}?").into()),
            },
            start_within_ms: words.ms("start_within")?.unwrap_or(usual.start_within_ms),
            finish_by_ms: words.ms("finish_by")?.unwrap_or(usual.finish_by_ms),
            in_doubt: match words.key("in_doubt") {
                None | Some("hold") => InDoubt::Hold,
                Some("resend") => InDoubt::Resend,
                Some("assume_sent") => InDoubt::AssumeSent,
                Some(other) => return Err(format!("in_doubt={other}?").into()),
            },
            max_attempts: words.number("max_attempts", usual.max_attempts)?,
            backoff_from_ms: words.ms("backoff_from")?.unwrap_or(usual.backoff_from_ms),
            backoff_to_ms: words.ms("backoff_to")?.unwrap_or(usual.backoff_to_ms),
            retention_ms: words.ms("retention")?.unwrap_or(usual.retention_ms),
            // Most scripts are about one run; scripts with several let them overlap.
            overlap: overlap(words.key("overlap").unwrap_or("allow"))?,
            min_gap_ms: words.ms("min_gap")?.unwrap_or(usual.min_gap_ms),
            jitter_ms: words.ms("jitter")?.unwrap_or(usual.jitter_ms),
            canary: match words.key("canary") {
                None => None,
                Some(share) => Some(Canary { share: share.parse()?, limit: words.number("hold", 500)? }),
            },
        })
    }

    fn resume(&mut self, words: &mut Words) -> Parsed<Command> {
        let schedule = self.schedule(words.need("schedule")?)?;
        let plan = self.ledger.schedules().get(&schedule).map_or(0, |schedule| schedule.plan.version);
        Ok(Command::ScheduleResume(ScheduleResume { schedule, plan_version: words.number("plan", plan)? }))
    }

    /// `fire daily` opens the plan's next instant on time. Each part of it may be given: `plan=` `from=`
    /// `opens="10s,70s"` `explains="coalesced 10s 70s 2"` `through=` `next=130s|none`. An instant `70s@10s` is due at
    /// 70 s and has the name of 10 s.
    fn fire(&mut self, words: &mut Words) -> Parsed<Command> {
        let names: Vec<String> = match words.key("numbered") {
            Some(count) => numbered(count, words)?,
            None => words.rest().into_iter().map(str::to_owned).collect(),
        };
        let words = FireWords {
            plan: words.key("plan").map(str::parse).transpose()?,
            from: words.key("from").map(|text| self.instant(text)).transpose()?,
            opens: words.key("opens").map(|text| self.instants(text)).transpose()?,
            explains: words.key("explains").map(|text| self.explained(text)).transpose()?.unwrap_or_default(),
            through: words.ms("through")?.map(|ms| self.first.plus_ms(ms)),
            next: match words.key("next") {
                None => None,
                Some("none") => Some(None),
                Some(text) => Some(Some(self.instant(text)?)),
            },
            finish: words.ms("finish")?,
        };
        Ok(Command::Fire(names.iter().map(|name| self.one_fire(name, &words)).collect::<Parsed<_>>()?))
    }

    fn one_fire(&self, name: &str, words: &FireWords) -> Parsed<Fire> {
        let id = self.schedule(name)?;
        let nowhere = NextInstant { occurrence: OccurrenceName::Instant(self.first), due: self.first, jitter_ms: 0 };
        let schedule = self.ledger.schedules().get(&id);
        let plan = schedule.and_then(|schedule| schedule.plan.next.clone()).unwrap_or(nowhere);
        let opens = words.opens.clone().unwrap_or_else(|| vec![plan.clone()]);
        let last = opens.last().map_or(plan.due, |next| next.due);
        let through = words.through.unwrap_or(last);
        let after = through.plus_ms(60_000);
        let finish_ms = words.finish.or(schedule.map(|schedule| schedule.settings.policies.finish_by_ms)).unwrap_or(0);
        let opening = |next: NextInstant| Opening {
            occurrence: next.occurrence,
            due: next.due,
            cause: OpeningCause::Due,
            finish_by: next.due.plus_ms(finish_ms),
        };
        Ok(Fire {
            schedule: id,
            plan_version: words.plan.or(schedule.map(|schedule| schedule.plan.version)).unwrap_or(1),
            from: words.from.clone().map_or(plan.occurrence, |next| next.occurrence),
            opened: opens.into_iter().map(opening).collect(),
            explained: words.explains.clone(),
            through,
            next: words.next.clone().unwrap_or(Some(NextInstant {
                occurrence: OccurrenceName::Instant(after),
                due: after,
                jitter_ms: 0,
            })),
            tzdb: TZDB.into(),
        })
    }

    /// `10s`, or `70s@10s`: due at 70 s with the name of 10 s.
    fn instant(&self, text: &str) -> Parsed<NextInstant> {
        let (due, name) = text.split_once('@').unwrap_or((text, text));
        let at = |text: &str| Parsed::Ok(self.first.plus_ms(milliseconds(text)?));
        Ok(NextInstant { occurrence: OccurrenceName::Instant(at(name)?), due: at(due)?, jitter_ms: 0 })
    }

    fn instants(&self, text: &str) -> Parsed<Vec<NextInstant>> {
        text.split(',').filter(|part| !part.is_empty()).map(|part| self.instant(part)).collect()
    }

    /// `coalesced 10s 70s 2; too_late 130s 130s 1`.
    fn explained(&self, text: &str) -> Parsed<Vec<ExplainedRange>> {
        let one = |part: &str| {
            let [reason, first, last, count] = part.split_whitespace().collect::<Vec<_>>()[..] else {
                return Err(format!("'{part}': expected REASON FIRST LAST COUNT").into());
            };
            let reason = match reason {
                "coalesced" => UnopenedReason::Coalesced,
                "no_catch_up" => UnopenedReason::NoCatchUp,
                "too_late" => UnopenedReason::TooLate,
                "does_not_exist" => UnopenedReason::DoesNotExist,
                "opened_before" => UnopenedReason::OpenedBefore,
                "edited" => UnopenedReason::Edited,
                "overlap" => UnopenedReason::Overlap,
                "superseded" => UnopenedReason::Superseded,
                "restored" => UnopenedReason::Restored,
                other => return Err(format!("reason {other}?").into()),
            };
            let (first, last) = (self.instant(first)?.occurrence, self.instant(last)?.occurrence);
            let length = distance_ms(&first, &last).ok_or("two kinds of instants")?;
            let instants = match count.parse::<u32>()?.saturating_sub(1) {
                0 => InstantRange::default(),
                steps => InstantRange::every(length / i64::from(steps), steps),
            };
            Parsed::Ok(ExplainedRange { first, instants, reason })
        };
        text.split(';').map(one).collect()
    }

    /// Proposes what the leader computes from plan, calendar and policies (P16).
    fn fire_due(&mut self, words: &mut Words) -> Parsed<String> {
        let id = self.schedule(words.need("schedule")?)?;
        let now = words.ms("at")?.map_or(self.ledger.head().now, |ms| self.first.plus_ms(ms));
        let schedule = self.ledger.schedules().get(&id).ok_or("no such schedule")?;
        let zone = rules(words.key("zone").unwrap_or(&schedule.timing.zone))?;
        let pattern = Pattern::compile(&schedule.timing.when)?;
        let Some(fire) = catch_up::plan_fire(&self.ledger, id, &pattern, &zone, now) else {
            return Ok("nothing is due".into());
        };
        let text = super::reaction::fire(self, &fire);
        let epoch = self.ledger.head().current_epoch().unwrap_or_default();
        let now = now.plus_ms(-self.ledger.head().offset_ms());
        Ok(text + &self.commit_entry(Entry { epoch, now, actor: Actor::System, command: Command::Fire(vec![fire]) })?)
    }

    /// `f: claim daily 0-2 node=1`: the claim is called `f` from now on. Several sets are several claims of one entry:
    /// `claim daily 0-1 2-3`.
    fn claim(&mut self, words: &mut Words, context: &Context) -> Parsed<String> {
        let run = self.run(words.need("run")?)?;
        let page = self.ledger.page_of(run).map_or(PageId(run), |(page, _, _)| page);
        let chunk = page.chunk(words.number("chunk", 0)?);
        let node = words.number("node", 1)?;
        let known = self.ledger.nodes().get(&NodeId(node)).map_or(1, |node| node.incarnation.0);
        let owner = owner(node, words.number("incarnation", known)?);
        let claim = |text| Parsed::Ok(ClaimRequest { chunk, slice: slots(text)?, owner });
        let claims = words.rest().into_iter().map(claim).collect::<Parsed<Vec<_>>>()?;
        if let Some(alias) = &context.prefix {
            let epoch = self.ledger.head().current_epoch().unwrap_or_default();
            let fence = Fence { group: GROUP, epoch, index: self.index + 1, place: 0 };
            self.fences.insert(alias.clone(), fence);
        }
        self.commit(Command::Claim(claims), words)
    }

    /// `settle f accepted=0-1 refused="2 550 5.1.1 mailbox no such user" unsendable="3 no address"`. With a journal of
    /// an earlier incarnation: `settle f source=journal released=3,4 was_open=4 alone=yes`. With a reason of a release:
    /// `why=RateLimited`.
    fn settle(&mut self, words: &mut Words) -> Parsed<Command> {
        let mut outcomes = Vec::new();
        for name in words.rest() {
            let fence = self.fence(name)?;
            let open = self.ledger.claims().get(&fence).map(|row| row.chunk);
            let closed = self.ledger.closed_claims().find(|(known, _)| *known == fence);
            let place = open.or(closed.map(|(_, row)| row.chunk));
            let chunk = place.unwrap_or(PageId(RunId { index: 0, place: 0 }).chunk(0));
            let (released, was_open) = (words.slots("released")?, words.slots("was_open")?);
            let source = source(words.key("witness"), !was_open.is_empty())?;
            let open = released.and(&was_open);
            let released = [
                (why(words.key("why"), source)?, released.and_not(&open)),
                (ReleaseReason::OwnerCrashedComposing, open),
            ];
            outcomes.push(ClaimOutcome {
                source,
                accepted: words.slots("accepted")?,
                released: released.into_iter().filter(|(_, slots)| !slots.is_empty()).collect(),
                suppressed: words.slots("suppressed")?,
                in_doubt: words.slots("in_doubt")?,
                refused: words.all("refused").into_iter().map(refused).collect::<Parsed<Vec<_>>>()?.concat(),
                unsendable: words.all("unsendable").into_iter().map(unsendable).collect::<Parsed<_>>()?,
                alone: words.key("alone").is_some(),
                relay_reply: words.key("said").map(relay_reply).transpose()?,
                ..ClaimOutcome::empty(chunk.page.chunk(words.number("chunk", chunk.number)?), fence)
            });
        }
        Ok(Command::Settle(outcomes))
    }

    fn decide(&mut self, words: &mut Words) -> Parsed<Command> {
        let run = self.run(words.need("run")?)?;
        let decision = match words.need("assume, resend or sent")? {
            "assume" => Decision::Assume,
            "resend" => Decision::Resend,
            "sent" => Decision::Sent,
            other => return Err(format!("decide {other}?").into()),
        };
        let by = if words.key("by") == Some("policy") { Decider::Policy } else { Decider::Operator };
        let up_to = words.key("up_to").map(|row| self.fence(row)).transpose()?;
        let request = words.key("request").map(str::to_owned);
        Ok(Command::Decide(Decide { run, recipients: numbers(words)?, decision, by, up_to, request }))
    }

    /// `RUN 1 3-4`: recipients of one run; `RUN also=RUN,RUN`: all of several runs. `rest=5`: the page ends there.
    fn letters(&mut self, words: &mut Words) -> Parsed<PickedLetters> {
        let also = words.key("also").map(|runs| runs.split(',').map(|run| self.run(run)).collect::<Parsed<Vec<_>>>());
        let also = also.transpose()?.unwrap_or_default();
        let request = words.key("request").map(str::to_owned);
        let body_hash = Hash::of(words.key("body").unwrap_or("").as_bytes());
        let rest: Option<u32> = words.key("rest").map(str::parse).transpose()?;
        let cancelled = words.number("cancelled", 0_u64)?;
        let of = words.need("run")?.to_owned();
        let run = self.run(&of)?;
        let first = PickedRecipients { run, recipients: numbers(words)? };
        let picked = also.into_iter().map(|run| PickedRecipients { run, recipients: vec![] });
        Ok(PickedLetters {
            request,
            body_hash,
            tenant: "default".into(),
            of,
            picked: [first].into_iter().chain(picked).collect(),
            cancelled,
            rest: rest.map(|number| run.recipient(number)),
        })
    }

    fn quarantine(&mut self, words: &mut Words) -> Parsed<Command> {
        let item = match (words.need("schedule or run")?, words.need("which")?) {
            ("schedule", name) => Quarantined::Schedule(self.schedule(name)?),
            ("run", name) => Quarantined::Run(self.run(name)?),
            (other, _) => return Err(format!("quarantine {other}?").into()),
        };
        Ok(Command::Quarantine(Quarantine { item, cause: "it panicked twice".into() }))
    }
}

/// `rule=first`: the first call wins.
fn rule(words: &mut Words) -> KeyRule {
    if words.key("rule") == Some("first") { KeyRule::FirstWins } else { KeyRule::Strict }
}

/// `main/250/queued as 4F2`, or only `main`.
fn relay_reply(text: &str) -> Parsed<RelayReply> {
    let mut parts = text.splitn(3, '/');
    let relay = parts.next().unwrap_or_default().into();
    let (code, text) = (parts.next().unwrap_or("0").parse()?, parts.next().unwrap_or_default().into());
    Ok(RelayReply {
        relay,
        code,
        enhanced: (code == 250).then_some(EnhancedCode { class: 2, subject: 0, detail: 0 }),
        text,
    })
}

/// `team=ops,tier=`, also if they break the rules, so that the checks of `apply` are tested too.
fn labels(text: &str) -> Parsed<Labels> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let map: BTreeMap<&str, &str> = pairs.collect();
    Ok(postcard::from_bytes(&postcard::to_stdvec(&map)?)?)
}

fn overlap(word: &str) -> Parsed<Overlap> {
    match word {
        "buffer_one" => Ok(Overlap::BufferOne),
        "skip" => Ok(Overlap::Skip),
        "allow" => Ok(Overlap::Allow),
        "cancel_other" => Ok(Overlap::CancelOther),
        other => Err(format!("overlap={other}?").into()),
    }
}

/// The arguments of a `fire`.
struct FireWords {
    plan: Option<u64>,
    from: Option<NextInstant>,
    opens: Option<Vec<NextInstant>>,
    explains: Vec<ExplainedRange>,
    through: Option<Time>,
    next: Option<Option<NextInstant>>,
    finish: Option<i64>,
}

pub fn owner(node: u64, incarnation: u64) -> ClaimOwner {
    ClaimOwner { node: NodeId(node), incarnation: Incarnation(incarnation) }
}

/// Returns a zone of the bundled database.
pub fn rules(name: &str) -> Parsed<Zone> {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    Ok(Zone { rules: database.get(name)?, tzdb: TZDB.into() })
}

/// `numbered=1000 prefix=s`: s0000 to s0999.
fn numbered(count: &str, words: &mut Words) -> Parsed<Vec<String>> {
    let prefix = words.key("prefix").unwrap_or("s");
    Ok((0..count.parse::<u32>()?).map(|number| format!("{prefix}{number:04}")).collect())
}

fn numbers(words: &mut Words) -> Parsed<Vec<u32>> {
    words.rest().into_iter().map(|number| Ok(number.parse()?)).collect()
}

/// `0-3 550 5.1.1 mailbox no such user`; `-`: no enhanced code.
fn refused(text: &str) -> Parsed<Vec<RelayRefusal>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [which, code, enhanced, effect, ref words @ ..] = words[..] else {
        return Err(format!("'{text}': expected SLOTS CODE ENHANCED SCOPE TEXT").into());
    };
    let enhanced = EnhancedCode::parse(enhanced);
    let effect = match effect {
        "mailbox" => RefusalEffect::Dead,
        "deferred" => RefusalEffect::BackOff,
        "relay" => RefusalEffect::NextWave,
        "content" => RefusalEffect::MayPauseRun,
        "unnamed" => RefusalEffect::CountAttempt,
        other => return Err(format!("effect {other}?").into()),
    };
    let one = |slot| Ok(RelayRefusal { slot, code: code.parse()?, enhanced, text: words.join(" "), effect });
    slots(which)?.iter().map(one).collect()
}

fn unsendable(text: &str) -> Parsed<(u16, Unsendable)> {
    let (slot, cause) = text.split_once(' ').ok_or("expected SLOT CAUSE")?;
    let cause = match cause {
        "no_smtputf8" => Unsendable::NoSmtpUtf8,
        words => Unsendable::NotComposed(words.into()),
    };
    Ok((slot.parse()?, cause))
}

fn source(name: Option<&str>, was_open: bool) -> Parsed<OutcomeSource> {
    match name {
        None if was_open => Ok(OutcomeSource::Journal),
        None => Ok(OutcomeSource::Owner),
        Some("journal") => Ok(OutcomeSource::Journal),
        Some("no_journal") => Ok(OutcomeSource::NoJournal),
        Some(other) => Err(format!("witness {other}?").into()),
    }
}

fn why(name: Option<&str>, source: OutcomeSource) -> Parsed<ReleaseReason> {
    let all = [
        ReleaseReason::Busy,
        ReleaseReason::RateLimited,
        ReleaseReason::SessionEnded,
        ReleaseReason::NotInClaim,
        ReleaseReason::RunPaused,
        ReleaseReason::RunEnded,
        ReleaseReason::PastDeadline,
        ReleaseReason::LeaseOver,
        ReleaseReason::JournalFailed,
        ReleaseReason::Stopping,
        ReleaseReason::OwnerCrashed,
    ];
    match name {
        None if source == OutcomeSource::Journal => Ok(ReleaseReason::OwnerCrashed),
        None => Ok(ReleaseReason::Busy),
        Some(name) => {
            all.into_iter().find(|why| format!("{why:?}") == name).ok_or_else(|| format!("why {name}?").into())
        }
    }
}

/// `etag=E`: what the caller has read.
fn etag(words: &mut Words) -> Option<String> {
    words.key("etag").map(str::to_owned)
}

fn removal(word: &str, words: &mut Words) -> Parsed<Removal> {
    Ok(Removal { name: words.need(word)?.into(), expected: etag(words) })
}

fn campaign_end(words: &mut Words) -> Parsed<CampaignEnd> {
    Ok(CampaignEnd { campaign: campaign_name(words)?, expected: etag(words) })
}

fn campaign_name(words: &mut Words) -> Parsed<CampaignName> {
    let name = words.need("campaign")?.to_owned();
    Ok(CampaignName { tenant: words.key("tenant").unwrap_or("default").into(), name })
}

fn authority_step(words: &mut Words) -> Parsed<AuthorityStep> {
    let step = words.need("step")?;
    let mut id = |key| words.number(key, 0).map(|number: u8| AuthorityId([number; 32]));
    match step {
        "add" => Ok(AuthorityStep::Add { present: id("present")?, next: id("next")? }),
        "use" => Ok(AuthorityStep::Use(id("next")?)),
        "drop" => Ok(AuthorityStep::DropFormer(id("next")?)),
        "abort" => Ok(AuthorityStep::Abort(id("next")?)),
        other => Err(format!("no step of a rotation: {other}").into()),
    }
}

/// `attach=terms,prices bytes=70000`: files of these names, each of so many bytes.
fn attached(content: Content, words: &mut Words) -> Parsed<Content> {
    let (names, size) = (words.key("attach").unwrap_or_default(), words.number("bytes", 1_000)?);
    let attachment = |name: &str| Attachment {
        name: format!("{name}.pdf"),
        content_type: "application/pdf".into(),
        content_id: None,
        size,
        file: Hash::of(name.as_bytes()),
    };
    Ok(Content { attachments: names.split_terminator(',').map(attachment).collect(), ..content })
}
