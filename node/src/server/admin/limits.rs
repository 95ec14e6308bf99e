//! Maximum sizes of requests.

use reveille_proto::admin::v1::campaign_service_server::CampaignServiceServer;
use reveille_proto::admin::v1::message_service_server::MessageServiceServer;
use reveille_proto::admin::v1::schedule_service_server::ScheduleServiceServer;
use reveille_proto::admin::v1::template_service_server::TemplateServiceServer;
use tonic::server::NamedService;

use super::Admin;

/// Maximum size of a request, in bytes. The largest schedule without attachments has about 1.3 MB.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum size of a request of a service whose requests may have attachments: 10 MiB, in base64 over HTTP.
const REQUEST_WITH_FILES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The services whose requests may have attachments.
const WITH_FILES: [&str; 4] = [
    CampaignServiceServer::<Admin>::NAME,
    MessageServiceServer::<Admin>::NAME,
    ScheduleServiceServer::<Admin>::NAME,
    TemplateServiceServer::<Admin>::NAME,
];

/// Returns the maximum size of a request to this service, in bytes.
pub fn request_bytes_max(service: &str) -> usize {
    if WITH_FILES.contains(&service) { REQUEST_WITH_FILES_BYTES_MAX } else { REQUEST_BYTES_MAX }
}
