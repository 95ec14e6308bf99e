//! The services of the admin API, one per file. Large calls of a service have their own files.

/// Implements a service of the API. A method is the function of [`Admin`](super::Admin) with its name, or the function
/// behind `=`. It gets the request and the call. The first word of a line says which tenant the request names: that of
/// its field `tenant`, that of its field `schedule`, none (`cluster`), or what `access::subject` says (`own`). The
/// second word in brackets is the field with the request id, which each error of the function has.
macro_rules! serve {
    ($module:ident::$service:ident {
        $([type $stream:ident = $stream_type:ty])?
        $($subject:ident $method:ident($request:ty $(, $id:ident)?) -> $response:ty $(= $function:path)?;)*
    }) => {
        #[tonic::async_trait]
        impl reveille_proto::admin::v1::$module::$service for $crate::server::admin::Admin {
            $(type $stream = $stream_type;)?

            $(async fn $method(
                &self,
                request: tonic::Request<$request>,
            ) -> Result<tonic::Response<$response>, tonic::Status> {
                let (call, message) = $crate::server::admin::access::authorise(request)?;
                $(let call = call.named(&message.$id);)?
                let method = method!($method $($function)?);
                let answer = method(self, message, &call).await;
                let answer = answer!(answer call $($id)?);
                Ok(tonic::Response::new(answer.map_err(|fault| call.outcome(fault.into()))?))
            })*
        }
        $(subject!($subject $request);)*
    };
}

macro_rules! answer {
    ($answer:ident $call:ident) => {
        $answer
    };
    ($answer:ident $call:ident $id:ident) => {
        $answer.map_err(|fault| fault.request($call.request_id()))
    };
}

macro_rules! subject {
    (own $request:ty) => {};
    (cluster $request:ty) => {
        impl $crate::server::admin::access::Subject for $request {}
    };
    ($subject:ident $request:ty) => {
        impl $crate::server::admin::access::Subject for $request {
            fn visit_tenants(&mut self, visit: &mut dyn FnMut(&mut String)) {
                visit_tenants!($subject self visit);
            }
        }
    };
}

macro_rules! visit_tenants {
    (tenant $message:ident $visit:ident) => {
        $visit(&mut $message.tenant)
    };
    (schedule $message:ident $visit:ident) => {
        $crate::server::admin::access::visit_body($message.schedule.as_mut(), $visit)
    };
}

macro_rules! method {
    ($method:ident) => {
        $crate::server::admin::Admin::$method
    };
    ($method:ident $function:path) => {
        $function
    };
}

mod archive_loss;
pub(crate) mod audience;
pub(crate) mod audit;
mod authority;
mod backup;
mod campaign;
mod clock;
mod cluster;
mod dead_letter;
mod dead_letter_pages;
mod doubt;
mod event;
mod lost_files;
mod member;
pub(crate) mod message;
mod opt_out;
mod pool;
mod probe;
mod recipient;
mod relay;
mod restore;
pub(crate) mod run;
pub(crate) mod schedule;
mod scrub;
mod template;
mod tenant;
mod token;
mod upgrade;
pub(crate) mod upload;
mod upload_recipients;
pub(crate) mod watch;
