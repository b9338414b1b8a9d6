package io.raptormq.interop.scenarios;

import com.alibaba.fastjson.JSON;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Plays scenarios side by side and prints one line for each: "outcome " and JSON {prefix, scenario, seconds,
 * outcome or error}.
 *
 * <p>Arguments: address of the name server; prefix of topics and groups; "all" or names of scenarios. The exit code is 0 even when
 * scenarios fail: their lines say so.
 */
public final class ScenarioRunner {
    private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    /** Scenarios that need something to have happened before: not part of "all". */
    private static final Map<String, Scenario> SEQUELS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("Rebalance", new Rebalance());
        SCENARIOS.put("Queries", new Queries());
        SCENARIOS.put("AdminCalls", new AdminCalls());
        SCENARIOS.put("MonitoringCalls", new MonitoringCalls());
        SCENARIOS.put("Transactions", new Transactions());
        SCENARIOS.put("Transactions.Before", new Transactions.Before());
        SCENARIOS.put("RequestReply", new RequestReply());
        SCENARIOS.put("Traces", new Traces());
        SCENARIOS.put("Retries", new Retries());
        SCENARIOS.put("DelayedMessages", new DelayedMessages());
        SCENARIOS.put("TimerMessages", new TimerMessages());
        SCENARIOS.put("StartingPoint", new StartingPoint());
        SCENARIOS.put("TagFilter", new TagFilter());
        SCENARIOS.put("SqlFilter", new SqlFilter());
        SCENARIOS.put("OrderlyHandOver", new OrderlyHandOver());
        SCENARIOS.put("QueueLocks", new QueueLocks());
        SCENARIOS.put("PopConsumption", new PopConsumption());
        SCENARIOS.put("Priorities", new Priorities());
        SCENARIOS.put("GroupControl", new GroupControl());
        SCENARIOS.put("GroupRestart", new GroupRestart());
        SCENARIOS.put("LitePull", new LitePull());
        SCENARIOS.put("OrderedConsumption", new OrderedConsumption());
        SCENARIOS.put("Broadcasting", new Broadcasting());
        SCENARIOS.put("SyncSend", new SyncSend());
        SCENARIOS.put("VipChannel", new VipChannel());
        SCENARIOS.put("AsyncSend", new AsyncSend());
        SCENARIOS.put("OnewaySend", new OnewaySend());
        SCENARIOS.put("BatchSend", new BatchSend());
        SCENARIOS.put("BatchQueue", new BatchQueue());
        SCENARIOS.put("BatchLookups", new BatchLookups());
        SCENARIOS.put("OldPeer", new OldPeer());
        SCENARIOS.put("CompressedSend", new CompressedSend());
        SCENARIOS.put("SizeLimit", new SizeLimit());
        SCENARIOS.put("AutoCreation", new AutoCreation());
        SCENARIOS.put("SinglePulls", new SinglePulls());
        SCENARIOS.put("Refusals", new Refusals());
        SCENARIOS.put("TopicLife", new TopicLife());
        SCENARIOS.put("BrokerRestart.Before", new BrokerRestart.Before());
        SEQUELS.put("BrokerRestart.After", new BrokerRestart.After());
        SEQUELS.put("Transactions.After", new Transactions.After());
        SEQUELS.put("AccessControl", new AccessControl());
    }

    private ScenarioRunner() {}

    public static void main(String[] arguments) throws Exception {
        run(arguments);
        System.exit(0); // clients of a failed scenario may still run
    }

    /** As main, and returns at the end. */
    public static void run(String[] arguments) throws Exception {
        Map<String, Scenario> chosen = new LinkedHashMap<>();
        for (String name : List.of(arguments).subList(2, arguments.length)) {
            choose(name, chosen);
        }
        ExecutorService threads = Executors.newFixedThreadPool(chosen.size());
        try (Cluster cluster = new Cluster(arguments[0], arguments[1])) {
            List<Future<?>> running = new ArrayList<>();
            chosen.forEach((name, scenario) -> running.add(threads.submit(() -> play(arguments[1], name, scenario, cluster))));
            for (Future<?> each : running) {
                each.get();
            }
        } finally {
            threads.shutdown();
        }
    }

    private static void choose(String name, Map<String, Scenario> chosen) {
        if (name.equals("all")) {
            chosen.putAll(SCENARIOS);
        } else {
            chosen.put(name, SEQUELS.getOrDefault(name, SCENARIOS.get(name)));
        }
    }

    private static void play(String prefix, String name, Scenario scenario, Cluster cluster) {
        Map<String, Object> line = new LinkedHashMap<>();
        long begin = System.nanoTime();
        try {
            line.put("outcome", scenario.play(cluster));
        } catch (Exception error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            line.put("error", trace.toString());
        }
        line.put("prefix", prefix);
        line.put("scenario", name);
        line.put("seconds", (System.nanoTime() - begin) / 1_000_000 / 1e3);
        System.out.println("outcome " + JSON.toJSONString(line));
    }
}
