/** The official client's TLS against servers in every mode. */
package io.raptormq.interop.tls;
