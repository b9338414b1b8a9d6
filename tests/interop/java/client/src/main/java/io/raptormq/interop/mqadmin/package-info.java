/** Runs the official admin tool, many commands in one JVM. */
package io.raptormq.interop.mqadmin;
