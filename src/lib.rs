pub mod fleet;
pub mod request;
pub mod routing;
