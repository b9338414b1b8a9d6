package io.raptormq.interop.scenarios;

import java.util.Map;

/** One scenario; its name is that of its class. */
interface Scenario {
    /** Plays the scenario on topics and groups of its own and returns the outcome. */
    Map<String, Object> play(Cluster cluster) throws Exception;
}
