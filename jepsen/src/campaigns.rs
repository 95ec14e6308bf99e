//! Campaigns, as an operator makes and launches them, and the addresses of their audiences by a model of its own.

use anyhow::Result;
use reveille_proto::admin::v1::campaign_service_client::CampaignServiceClient;
use reveille_proto::admin::v1::{
    Audience, Campaign, CreateCampaignRequest, LaunchCampaignRequest, ListCampaignsRequest, ScheduleBody,
};

use crate::admin::Admin;
use crate::orders::Came;

/// Entries of one page.
const PAGE: i32 = 1_000;

/// A recipient of the audience that is made of this number (`audience generate --seed`).
pub fn made_address(seed: u64, recipient: u32) -> String {
    format!("r{recipient:08}.s{seed}@audience.invalid")
}

/// The value of a recipient's only variable in that audience.
pub fn made_value(seed: u64, column: &str, recipient: u32) -> String {
    let chance = mixed(seed ^ mixed(u64::from(recipient) << 8));
    format!("{column} {:06x}", chance & 0xff_ffff)
}

/// SplitMix64's last step.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The same mail to a sealed audience.
pub fn to_sealed(body: ScheduleBody, audience: &str) -> ScheduleBody {
    ScheduleBody { audience: Some(Audience { sealed: audience.to_owned(), ..Audience::default() }), ..body }
}

impl Admin {
    /// A draft; answers whether it was not there before.
    pub async fn create_campaign(&self, request_id: &str, body: &ScheduleBody) -> Came<bool> {
        let request = CreateCampaignRequest {
            schedule: Some(body.clone()),
            request_id: request_id.to_owned(),
            ..CreateCampaignRequest::default()
        };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { CampaignServiceClient::new(channel).create_campaign(request).await }
        });
        came.await.map(|answer| answer.created)
    }

    /// Lets it open at its instant. Again it is the same launch.
    pub async fn launch_campaign(&self, name: &str) -> Came<()> {
        let request =
            LaunchCampaignRequest { tenant: self.tenant(), name: name.to_owned(), ..LaunchCampaignRequest::default() };
        let came = self.order(|channel| {
            let request = request.clone();
            async move { CampaignServiceClient::new(channel).launch_campaign(request).await }
        });
        came.await.map(|_| ())
    }

    /// All campaigns, as far as one page tells.
    pub async fn campaigns(&self) -> Result<Vec<Campaign>> {
        let request =
            ListCampaignsRequest { tenant: self.tenant(), page_size: PAGE, ..ListCampaignsRequest::default() };
        let answer = self.read("campaign list", |channel| {
            let request = request.clone();
            async move { CampaignServiceClient::new(channel).list_campaigns(request).await }
        });
        Ok(answer.await?.campaigns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_made_audience_is_the_one_in_the_handbook() {
        assert_eq!(made_address(42, 17), "r00000017.s42@audience.invalid");
    }
}
