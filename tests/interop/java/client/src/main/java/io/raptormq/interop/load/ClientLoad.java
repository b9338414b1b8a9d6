package io.raptormq.interop.load;

import com.alibaba.fastjson.JSON;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Puts one load after the other on a broker.
 *
 * <p>Arguments: address of the name server; seconds of warm-up and of measuring of each load; most messages of each load; the loads, each
 * {@code sync:THREADS}, {@code async:THREADS:UNDER_WAY} or {@code batch:THREADS:LIST}. For each it prints "measuring LOAD" when the warm-up
 * ends, "measured LOAD" when the time is over, and "result " with JSON.
 */
public final class ClientLoad {
    static final int BODY_BYTES = 1024;
    private static final int QUEUES = 16;
    static final String TOPIC = "load";

    private ClientLoad() {}

    public static void main(String[] arguments) {
        try {
            createTopic(arguments[0]);
            for (String name : List.of(arguments).subList(4, arguments.length)) {
                long maxMessages = Long.parseLong(arguments[3]);
                run(arguments[0], name, Long.parseLong(arguments[1]), Long.parseLong(arguments[2]), new Window(maxMessages));
            }
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the clients' threads would keep the process alive
        }
    }

    static void createTopic(String nameServer) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000);
        admin.setNamesrvAddr(nameServer);
        admin.start();
        String broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(TOPIC, QUEUES, QUEUES, 6));
        admin.shutdown();
    }

    private static Load load(String name) {
        byte[] body = new byte[BODY_BYTES];
        new Random(1).nextBytes(body);
        String[] parts = name.split(":");
        int threads = Integer.parseInt(parts[1]);
        return switch (parts[0]) {
            case "sync" -> new SyncLoad(threads, body);
            case "async" -> new AsyncLoad(threads, body, new Semaphore(Integer.parseInt(parts[2])));
            case "batch" -> new BatchLoad(threads, body, Integer.parseInt(parts[2]));
            default -> throw new IllegalArgumentException("no such load: " + name);
        };
    }

    private static void run(String nameServer, String name, long warmUpSeconds, long seconds, Window window) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        List<Thread> threads = start(load(name), producer, window);
        TimeUnit.SECONDS.sleep(warmUpSeconds);
        System.out.println("measuring " + name);
        window.beginMeasuring();
        window.awaitEnd(seconds);
        System.out.println("measured " + name);
        for (Thread thread : threads) {
            thread.join();
        }
        producer.shutdown();
        System.out.println("result " + JSON.toJSONString(result(name, window)));
    }

    private static List<Thread> start(Load load, DefaultMQProducer producer, Window window) {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < load.threads(); i++) {
            Thread thread = new Thread(() -> {
                try {
                    load.send(producer, TOPIC, window);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            });
            thread.start();
            threads.add(thread);
        }
        return threads;
    }

    private static Map<String, Object> result(String name, Window window) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("load", name);
        result.put("messages", window.messages());
        result.put("failures", window.failures());
        result.put("seconds", window.seconds());
        result.put("p50_ms", window.latencies().percentileMillis(0.50));
        result.put("p99_ms", window.latencies().percentileMillis(0.99));
        return result;
    }
}
