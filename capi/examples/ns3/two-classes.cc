// Two classes of weights 3 and 1 over a link of 10 Mbit/s, each with an offered load of the whole link:
// throughput under Fairlane, and under ns-3's own pfifo_fast. Prints for each the first class's share of the bytes.
#include "fairlane-queue-disc.h"

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <cmath>
#include <cstdio>

using namespace ns3;

namespace
{

constexpr uint32_t PAYLOAD = 972; // with UDP and IP, 1000 bytes
constexpr double WARM_UP = 1;     // seconds
constexpr double END = 11;

/// Sends packets at random times, on average as many as the link carries.
void
Send(Ptr<Socket> socket, Ptr<ExponentialRandomVariable> gap)
{
    socket->Send(Create<Packet>(PAYLOAD));
    Simulator::Schedule(Seconds(gap->GetValue()), &Send, socket, gap);
}

double
ShareOfFirst(const std::string& type, const std::string& weights)
{
    NodeContainer nodes(2);
    PointToPointHelper wire;
    wire.SetDeviceAttribute("DataRate", StringValue("10Mbps"));
    wire.SetChannelAttribute("Delay", StringValue("1ms"));
    wire.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));
    NetDeviceContainer devices = wire.Install(nodes);
    InternetStackHelper().Install(nodes);
    TrafficControlHelper control;
    if (weights.empty())
    {
        control.SetRootQueueDisc(type);
    }
    else
    {
        control.SetRootQueueDisc(type, "Weights", StringValue(weights));
    }
    control.Install(devices.Get(0));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);

    std::vector<Ptr<PacketSink>> sinks;
    std::vector<uint64_t> before(2);
    for (uint8_t number = 0; number < 2; number++)
    {
        uint16_t port = 9 + number;
        PacketSinkHelper sink("ns3::UdpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
        sinks.push_back(DynamicCast<PacketSink>(sink.Install(nodes.Get(1)).Get(0)));

        Ptr<Socket> socket = Socket::CreateSocket(nodes.Get(0), UdpSocketFactory::GetTypeId());
        socket->Connect(InetSocketAddress(interfaces.GetAddress(1), port));
        // Priorities 2 and 3 belong to one band of pfifo_fast, and to classes 0 and 1 here.
        socket->SetPriority(2 + number);
        Ptr<ExponentialRandomVariable> gap = CreateObject<ExponentialRandomVariable>();
        gap->SetAttribute("Mean", DoubleValue(1000 * 8 / 10e6));
        gap->SetStream(1 + number);
        Simulator::Schedule(Seconds(0.1), &Send, socket, gap);
    }
    Simulator::Schedule(Seconds(WARM_UP), [&] {
        for (std::size_t i = 0; i < 2; i++)
        {
            before[i] = sinks[i]->GetTotalRx();
        }
    });
    Simulator::Stop(Seconds(END));
    Simulator::Run();
    double first = sinks[0]->GetTotalRx() - before[0];
    double second = sinks[1]->GetTotalRx() - before[1];
    Simulator::Destroy();
    return first / (first + second);
}

} // namespace

int
main()
{
    double ours = ShareOfFirst("ns3::FairlaneQueueDisc", "3,1");
    double theirs = ShareOfFirst("ns3::PfifoFastQueueDisc", "");
    std::printf("fairlane, weights 3 and 1: %.4f\n", ours);
    std::printf("pfifo_fast: %.4f\n", theirs);
    return std::abs(ours - 0.75) < 0.01 ? 0 : 1;
}
