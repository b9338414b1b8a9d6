package io.raptormq.interop.load;

import java.util.Locale;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * A load of 1 KiB messages by the official producer, as fast as it goes.
 *
 * <p>Arguments: name servers, topic, mode (sync, async or batch), seconds of warm-up, seconds of measurement. It prints a line
 * {@code measuring} when the measurement begins and a line {@code measured <JSON>} when it has ended; whoever wants to know what
 * the broker spends looks at it at these two moments.
 */
public final class ProducerLoad {
    private ProducerLoad() {
    }

    public static void main(String[] args) throws Exception {
        String nameServers = args[0];
        String topic = args[1];
        Sending sending = Sending.of(args[2], topic);
        int warmUpSeconds = Integer.parseInt(args[3]);
        int seconds = Integer.parseInt(args[4]);

        DefaultMQProducer producer = new DefaultMQProducer("load_" + args[2]);
        producer.setNamesrvAddr(nameServers);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try {
            sending.start(producer);
            Thread.sleep(warmUpSeconds * 1000L);
            sending.begin();
            System.out.println("measuring");
            long started = System.nanoTime();
            Thread.sleep(seconds * 1000L);
            Measured measured = sending.end();
            double elapsed = (System.nanoTime() - started) / 1e9;
            System.out.println("measured " + json(measured, elapsed));
            sending.stop();
        } finally {
            producer.shutdown();
        }
        if (sending.failures() > 0) {
            System.out.println("failed sends: " + sending.failures() + ", the last one: " + sending.lastFailure());
        }
    }

    private static String json(Measured measured, double elapsed) {
        return String.format(Locale.ROOT,
            "{\"messages\":%d,\"seconds\":%.3f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"failures\":%d}",
            measured.messages(), elapsed, measured.percentileMs(0.50), measured.percentileMs(0.99), measured.failures());
    }
}
