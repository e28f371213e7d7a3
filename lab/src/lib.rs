//! Real kernels in network namespaces: topologies, servers and clients for demonstrations and end-to-end tests.
