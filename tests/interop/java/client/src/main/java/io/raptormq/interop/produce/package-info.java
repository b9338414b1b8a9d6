/** Sends messages that other programs read, as an application with the official client does. */
package io.raptormq.interop.produce;
