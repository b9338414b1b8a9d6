/** One JVM for several versions of RocketMQ's client. */
package io.raptormq.interop.versions;
