package io.raptormq.interop.tls;

import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;

/**
 * Sends one message with every kind of client to every server and prints "outcome " and JSON {"server: client": "SEND_OK" or "refused"}.
 *
 * <p>Arguments: folder of the certificates; then servers, name=address of the name server. A server named "renewed" gets another certificate
 * while a client sends; from one named "mutual" a message is consumed as well.
 */
public final class TlsClients {
    private static final String TOPIC = "tls";
    private static final int PATIENCE_SECONDS = 60;

    private static final AtomicInteger INSTANCES = new AtomicInteger();

    /** One kind of client; files without their folder, null for none. */
    private record Kind(boolean tls, boolean verifies, String authority, String certificate) {}

    private static final Map<String, Kind> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put("plain", new Kind(false, false, null, null));
        KINDS.put("not verifying", new Kind(true, false, null, null));
        KINDS.put("verifying", new Kind(true, true, "authority", null));
        KINDS.put("verifying against another authority", new Kind(true, true, "stranger", null));
        KINDS.put("with certificate", new Kind(true, true, "authority", "authority-client"));
        KINDS.put("with certificate of another authority", new Kind(true, true, "authority", "stranger-client"));
        KINDS.put("with expired certificate", new Kind(true, true, "authority", "authority-late"));
    }

    private final Path folder;

    private TlsClients(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] arguments) throws Exception {
        TlsClients clients = new TlsClients(Path.of(arguments[0]));
        Map<String, Future<?>> running = new TreeMap<>();
        ExecutorService threads = Executors.newCachedThreadPool();
        for (String server : List.of(arguments).subList(1, arguments.length)) {
            String name = server.split("=")[0];
            String address = server.split("=")[1];
            if (name.equals("renewed")) {
                running.put(name, threads.submit(() -> clients.renewed(address)));
                continue;
            }
            KINDS.forEach((kind, how) -> running.put(name + ": " + kind, threads.submit(() -> clients.sent(how, address))));
            if (name.equals("mutual")) {
                running.put(name + ": consumer", threads.submit(() -> clients.consumed(address)));
            }
        }
        Map<String, Object> outcome = new TreeMap<>();
        for (Map.Entry<String, Future<?>> each : running.entrySet()) {
            outcome.put(each.getKey(), each.getValue().get());
        }
        System.out.println("outcome " + JSON.toJSONString(outcome));
        System.exit(0);
    }

    private String sent(Kind kind, String address) throws Exception {
        DefaultMQProducer producer = producer(kind, address);
        try {
            return ended(() -> producer.send(message()).getSendStatus().name());
        } finally {
            producer.shutdown();
        }
    }

    private String consumed(String address) throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("tls_consumers");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            arrived.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setPollNameServerInterval(1_000);
        start(KINDS.get("with certificate"), address, consumer, consumer::start);
        boolean received = arrived.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        consumer.shutdown();
        return received ? "received" : "nothing";
    }

    /** A client keeps sending while the server's files change, until new clients find the new certificate. */
    private Map<String, Object> renewed(String address) throws Exception {
        DefaultMQProducer steady = producer(KINDS.get("verifying"), address);
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("before", steady.send(message()).getSendStatus());
        for (String suffix : List.of(".pem", ".key")) {
            Path fresh = folder.resolve("renewal" + suffix);
            Files.copy(folder.resolve("stranger-server" + suffix), fresh, StandardCopyOption.REPLACE_EXISTING);
            Files.move(fresh, folder.resolve("authority-renewed" + suffix), StandardCopyOption.REPLACE_EXISTING);
        }
        Kind successor = KINDS.get("verifying against another authority");
        List<String> failures = new ArrayList<>();
        String after = "refused";
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!after.equals("SEND_OK") && System.nanoTime() < deadline) {
            String status = ended(() -> steady.send(message()).getSendStatus().name());
            if (!status.equals("SEND_OK")) {
                failures.add(status);
            }
            after = sent(successor, address);
        }
        outcome.put("after", after);
        outcome.put("who was connected", steady.send(message()).getSendStatus());
        outcome.put("failures meanwhile", failures);
        steady.shutdown();
        return outcome;
    }

    private DefaultMQProducer producer(Kind kind, String address) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("tls_producers");
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10_000);
        start(kind, address, producer, producer::start);
        return producer;
    }

    /** A client reads the settings of TLS, which are one for the process, when it starts. */
    private void start(Kind kind, String address, ClientConfig client, Starting starting) throws MQClientException {
        client.setNamesrvAddr(address);
        client.setInstanceName("tls" + INSTANCES.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setMqClientApiTimeout(10_000);
        client.setUseTLS(kind.tls());
        synchronized (TlsClients.class) {
            TlsSystemConfig.tlsTestModeEnable = false;
            TlsSystemConfig.tlsClientAuthServer = kind.verifies();
            TlsSystemConfig.tlsClientTrustCertPath = path(kind.authority(), ".pem");
            TlsSystemConfig.tlsClientCertPath = path(kind.certificate(), ".pem");
            TlsSystemConfig.tlsClientKeyPath = path(kind.certificate(), ".key");
            starting.start();
        }
    }

    private String path(String name, String suffix) {
        return name == null ? null : folder.resolve(name + suffix).toString();
    }

    private static Message message() {
        return new Message(TOPIC, "hello".getBytes(StandardCharsets.UTF_8));
    }

    private static String ended(Callable<String> call) {
        try {
            return call.call();
        } catch (Exception refused) {
            return "refused";
        }
    }

    private interface Starting {
        void start() throws MQClientException;
    }
}
