/** Consumes what other programs have sent, as an application with the official client does. */
package io.raptormq.interop.consume;
