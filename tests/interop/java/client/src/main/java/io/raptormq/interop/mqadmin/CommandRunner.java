package io.raptormq.interop.mqadmin;

import com.alibaba.fastjson.JSON;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs one mqadmin command after the other: each line of a file is a command, its arguments separated by tabs; each gives one line of standard
 * output, "output " and JSON {command, output}. The output is all that the command printed, errors included. "{id}" and
 * "{offset}" stand for the first unique key and the first offset id that any command before has printed. With a word "until=TEXT" the command is
 * one that never ends: it is left alone once it has printed TEXT. A line that begins with a plus is for {@link LiveClients}.
 */
public final class CommandRunner {
    private static final Pattern ID = Pattern.compile("\\b([0-9A-F]{32}|[0-9A-F]{56})\\b");
    private static final Pattern OFFSET_ID = Pattern.compile("\\b7F000001[0-9A-F]{24}\\b");
    private static final int WAIT_MILLIS = 50;
    private static final int LONGEST_WAITS = 400;

    private CommandRunner() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        hastenEnds(Thread.currentThread());
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        String id = "";
        String offset = "";
        LiveClients clients = new LiveClients();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            List<String> command = new ArrayList<>(Arrays.asList(clients.insert(line).replace("{id}", id).replace("{offset}", offset).split("\t")));
            String until = command.stream().filter(word -> word.startsWith("until=")).findFirst().orElse(null);
            command.remove(until);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            try (PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
                System.setOut(stream);
                System.setErr(stream);
                if (line.startsWith("+")) {
                    String answer = clients.play(command);
                    printed.reset(); // what clients print of themselves is nobody's business
                    printed.writeBytes(answer.getBytes(StandardCharsets.UTF_8));
                } else if (until == null) {
                    play(command);
                } else {
                    playUntil(until.substring("until=".length()), command, printed);
                }
            } catch (InterruptedException interrupted) {
                throw interrupted;
            } catch (Exception fault) {
                printed.writeBytes(fault.toString().getBytes(StandardCharsets.UTF_8));
            } finally {
                System.setOut(answers);
                System.setErr(errors);
            }
            id = id.isEmpty() ? first(ID, printed) : id;
            offset = offset.isEmpty() ? first(OFFSET_ID, printed) : offset;
            Map<String, Object> outcome = new LinkedHashMap<>();
            outcome.put("command", command);
            outcome.put("output", printed.toString(StandardCharsets.UTF_8));
            answers.println("output " + JSON.toJSONString(outcome));
        }
        System.exit(0);
    }

    /** A client that ends waits up to three seconds until a thread of it looks up from an empty queue: that one is woken. */
    private static void hastenEnds(Thread player) {
        Thread waker = new Thread(() -> {
            while (true) {
                boolean ends = Arrays.stream(player.getStackTrace()).anyMatch(frame -> frame.getClassName().endsWith(".ServiceThread"));
                if (ends) {
                    Thread.getAllStackTraces().keySet().stream()
                            .filter(thread -> thread.getName().equals("NettyEventExecutor") && thread.getState() == Thread.State.TIMED_WAITING)
                            .forEach(Thread::interrupt);
                }
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(WAIT_MILLIS));
            }
        });
        waker.setDaemon(true);
        waker.start();
    }

    private static String first(Pattern pattern, ByteArrayOutputStream printed) {
        Matcher found = pattern.matcher(printed.toString(StandardCharsets.UTF_8));
        return found.find() ? found.group() : "";
    }

    private static void play(List<String> command) {
        Tool.play(command.toArray(new String[0]));
    }

    /** mqadmin as it is when it starts: some of its commands keep a client that they have closed, with which they find nothing any more. */
    private static final class Tool extends MQAdminStartup {
        private static void play(String[] command) {
            SUB_COMMANDS.clear();
            main0(command, null);
        }
    }

    private static void playUntil(String text, List<String> command, ByteArrayOutputStream printed) throws InterruptedException {
        Thread player = new Thread(() -> play(command));
        player.setDaemon(true);
        player.start();
        for (int wait = 0; wait < LONGEST_WAITS && !(player.isAlive() && printed.toString(StandardCharsets.UTF_8).contains(text)); wait++) {
            player.join(WAIT_MILLIS);
        }
    }
}
