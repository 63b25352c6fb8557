//! Routing rules as a pure function: method, subject and rules in, target out.

use std::collections::HashMap;

use crate::call::RouteReason;
use crate::cri::Method;
use crate::cri::subject::Subject;

/// Index in the order of the configuration.
pub type BackendIndex = usize;

/// The rules of `[routing]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingRules {
    /// Number of backends.
    pub backends: usize,
    /// For calls that no rule decides.
    pub default: BackendIndex,
    /// For the image service.
    pub images: BackendIndex,
    /// By runtime handler.
    pub handlers: HashMap<Box<str>, BackendIndex>,
}

/// Destination of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// To one backend.
    One(BackendIndex, RouteReason),
    /// To the backend that has the sandbox or container of the call.
    Owner,
    /// To the backend that has the pod of the call, or else to this one.
    PodOwner(BackendIndex),
    /// To every backend; the responses are joined.
    All(ResponseJoin),
}

/// How the responses of several backends are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseJoin {
    /// One message that holds the repeated fields of all.
    Concat,
    /// The messages of one stream after those of the other.
    Chain,
    /// The messages of all streams as they arrive.
    Interleave,
    /// Every backend must succeed; the response of the first is used.
    Every,
    /// The conditions and handlers of all.
    Status,
}

impl RoutingRules {
    fn handler(&self, subject: Option<&Subject>) -> Option<BackendIndex> {
        self.handlers.get(subject?.handler.as_deref()?).copied()
    }

    /// Returns the target of a call.
    pub fn decide(&self, method: Method, subject: Option<&Subject>) -> CallTarget {
        use CallTarget::{All, One, Owner, PodOwner};
        if self.backends <= 1 {
            return One(self.default, RouteReason::Default);
        }
        let by_handler = self.handler(subject);
        match method {
            Method::RunPodSandbox | Method::RestorePod => match by_handler {
                Some(backend) => One(backend, RouteReason::Handler),
                None => One(self.default, RouteReason::Default),
            },
            _ if method.first_id().is_some() => Owner,
            // An image is pulled by the backend of its pod.
            Method::PullImage => match by_handler {
                Some(backend) => One(backend, RouteReason::Handler),
                None => PodOwner(self.images),
            },
            Method::ImageStatus => match by_handler {
                Some(backend) => One(backend, RouteReason::Handler),
                None => One(self.images, RouteReason::Images),
            },
            Method::RemoveImage | Method::UpdateRuntimeConfig => All(ResponseJoin::Every),
            Method::ListPodSandbox
            | Method::ListContainers
            | Method::ListContainerStats
            | Method::ListPodSandboxStats
            | Method::ListPodSandboxMetrics
            | Method::ListImages
            | Method::ImageFsInfo => All(ResponseJoin::Concat),
            Method::StreamPodSandboxes
            | Method::StreamContainers
            | Method::StreamContainerStats
            | Method::StreamPodSandboxStats
            | Method::StreamPodSandboxMetrics
            | Method::StreamImages => All(ResponseJoin::Chain),
            Method::GetContainerEvents => All(ResponseJoin::Interleave),
            Method::Status => All(ResponseJoin::Status),
            // Version, RuntimeConfig, ListMetricDescriptors, and unknown methods.
            _ => One(self.default, RouteReason::Default),
        }
    }

    /// The order in which responses are joined: the image backend first for image calls, the default first otherwise. The
    /// kubelet uses the first file system only.
    pub fn order(&self, method: Method) -> Vec<BackendIndex> {
        let first = match method.service() {
            Some(crate::cri::method::Service::Image) => self.images,
            _ => self.default,
        };
        let mut order = vec![first];
        order.extend((0..self.backends).filter(|b| *b != first));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> RoutingRules {
        RoutingRules {
            backends: 2,
            default: 0,
            images: 0,
            handlers: HashMap::from([("kata".into(), 1)]),
        }
    }

    fn with_handler(handler: &str) -> Subject {
        Subject {
            handler: Some(handler.into()),
            ..Subject::default()
        }
    }

    #[test]
    fn one_backend_gets_everything() {
        let rules = RoutingRules {
            backends: 1,
            ..RoutingRules::default()
        };
        for method in Method::ALL {
            let target = rules.decide(method, None);
            assert_eq!(target, CallTarget::One(0, RouteReason::Default), "{method}");
        }
    }

    #[test]
    fn sandboxes_are_routed_by_handler() {
        let decide = |h| rules().decide(Method::RunPodSandbox, Some(&with_handler(h)));
        assert_eq!(decide("kata"), CallTarget::One(1, RouteReason::Handler));
        assert_eq!(decide("runc"), CallTarget::One(0, RouteReason::Default));
        assert_eq!(decide(""), CallTarget::One(0, RouteReason::Default));
        let restore = rules().decide(Method::RestorePod, Some(&with_handler("kata")));
        assert_eq!(restore, CallTarget::One(1, RouteReason::Handler));
        assert_eq!(
            rules().decide(Method::CheckpointPod, None),
            CallTarget::Owner
        );
    }

    #[test]
    fn every_list_asks_all_backends() {
        for method in Method::ALL.into_iter().filter(|m| m.is_list()) {
            let join = if method.is_server_streaming() {
                ResponseJoin::Chain
            } else {
                ResponseJoin::Concat
            };
            assert_eq!(
                rules().decide(method, None),
                CallTarget::All(join),
                "{method}"
            );
        }
    }

    #[test]
    fn file_systems_of_the_image_backend_come_first() {
        let rules = RoutingRules {
            images: 1,
            ..rules()
        };
        assert_eq!(rules.order(Method::ImageFsInfo), [1, 0]);
        assert_eq!(rules.order(Method::ListContainers), [0, 1]);
    }
}
