/** Programs behind the golden bytes: one makes real traffic, two say what the Java classes read in the recorded bytes. */
package io.raptormq.interop.golden;
